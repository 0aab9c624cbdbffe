"""Which settings have an effect only beside certain others: one table, and one rule, that a setting which is given has an effect.

A setting is given if the file or a flag names it, even with its default, unless its value asks for nothing: false, null, none, 0,
or nothing at all. Without the rule a run with `momentum: 0.5` and `optimizer: adamw` looks in MLflow as if it had momentum.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel

from pipelines.config.features import Fourier
from pipelines.config.section import Section, shown
from pipelines.config.source import Table
from pipelines.config.strategies import STRATEGIES
from pipelines.config.task import Language, Recommendation, Tabular

_NOTHING: tuple[Any, ...] = (None, False, "none", "", (), {}, 0, 0.0)


@dataclass(frozen=True)
class Use:
    """`setting` has an effect only while another one, `beside`, has one of the values `among`, or a value that `fits`."""

    setting: str
    """Dotted name, in which `*` stands for any name."""
    beside: str
    """Dotted name; with a dot first, it is a setting of the same section."""
    among: tuple[Any, ...] = ()
    fits: Callable[[Any, Any], bool] | None = None
    """Of the value beside, and of that of the setting."""
    remedy: str = ""
    """What gives the setting an effect; by default, to set `beside` to one of `among`."""
    values: tuple[Any, ...] = ()
    """Values of the setting that need it; all if empty."""
    of: type[Section] | None = None
    """The class of the section, where others have settings of the same name."""
    unless: Callable[[Any], bool] = lambda config: False
    """Whether it has an effect in this config all the same."""

    def concerns(self, name: str, section: BaseModel, value: Any) -> bool:
        return fnmatchcase(name, self.setting) and self.of in (None, type(section)) and (not self.values or value in self.values)

    def fault(self, name: str, config: BaseModel, section: BaseModel, value: Any) -> str:
        """Why the setting has no effect, and what gives it one; empty if it has."""
        within, _, last = name.rpartition(".")
        beside = f"{within}{self.beside}" if self.beside.startswith(".") else self.beside
        other = getattr(section, beside.rpartition(".")[2]) if self.beside.startswith(".") else _at(config, beside)
        if (self.fits(other, value) if self.fits else other in self.among) or self.unless(config):
            return ""
        remedy = self.remedy or f"set {beside} to {' or '.join(map(shown, self.among))}"
        given = "" if isinstance(value, BaseModel | Mapping) else f" (got {shown(_listed(value))})"
        of_other = "" if isinstance(other, Mapping) else f" while {beside} is {shown(_listed(other))}"
        return f"has no effect{of_other}; {remedy}, or remove {last}{given}"


def _is_own_strategy(config: Any) -> bool:
    return config.train.strategy not in STRATEGIES


def _stands_in(config: Any) -> bool:
    """`exact` may have the settings of synchronous servers, since it has their weights."""
    return _is_own_strategy(config) or (config.train.strategy == "exact" and config.train.parameter_server.mode == "sync")


def _is_range(workers: Any, _: Any) -> bool:
    return not isinstance(workers, int)


def _is_several(workers: Any, _: Any) -> bool:
    return (workers if isinstance(workers, int) else workers[1]) > 1


def _is_given(beside: Any, _: Any) -> bool:
    return beside not in _NOTHING


def _is_above_0(beside: Any, _: Any) -> bool:
    return bool(beside > 0)


def _is_above_1(beside: Any, _: Any) -> bool:
    return bool(beside > 1)


def _embeds(features: Mapping[str, Any], _: Any) -> bool:
    return any(each.encoder in ("vocabulary", "hash", "quantile") or ":" in each.encoder for each in features.values())


_STRATEGY, _STAGES = "train.strategy", "set train.parallel.pipeline to the number of workers that compute stages"
TABLE = (
    Use("train.resize_seconds", "train.workers", fits=_is_range, remedy="set train.workers to a range such as [1, 4]"),
    Use("train.balance.kind", "train.workers", fits=_is_several, remedy="set train.workers to 2 or more", values=("auto",)),
    Use("train.balance.kind", _STRATEGY, ("ddp", "exact"), values=("auto",), unless=_is_own_strategy),
    Use("train.profile.ranks", ".steps", fits=_is_given, remedy="set train.profile.steps to the first and the last, such as [50, 60]"),
    Use("train.profile.memory", ".steps", fits=_is_given, remedy="set train.profile.steps to the first and the last, such as [50, 60]"),
    Use("train.window", "train.shuffle", (True,)),
    *(Use(f"train.{name}", _STRATEGY, (*(s for s in STRATEGIES if s != "federated"),), unless=_is_own_strategy)
      for name in ("window", "remainder")),
    Use("train.compression", _STRATEGY, ("ddp",), unless=_is_own_strategy),
    Use("train.compression.rank", ".kind", ("powersgd",)),
    Use("train.compression.start_step", ".kind", ("powersgd",)),
    Use("train.compression.share", ".kind", ("topk",)),
    Use("train.local_sgd", _STRATEGY, ("local_sgd",), unless=_is_own_strategy),
    Use("train.clients", _STRATEGY, ("federated",), unless=_is_own_strategy),
    Use("train.*.outer_lr", ".outer", ("nesterov",)),
    Use("train.*.outer_momentum", ".outer", ("nesterov",)),
    Use("train.clients.delta", ".noise", fits=_is_above_0, remedy="set train.clients.noise, as to 1.0"),
    Use("train.parallel", _STRATEGY, ("sharded",), unless=_is_own_strategy),
    Use("train.parallel.schedule", ".pipeline", fits=lambda degree, _: degree != 1, remedy=_STAGES),
    Use("train.parallel.microbatches", ".pipeline", fits=lambda degree, _: degree != 1, remedy=_STAGES),
    Use("train.parallel.reshard_after_forward", ".pipeline", (1,)),
    Use("train.parallel.reduce_every_pass", "train.accumulate", fits=_is_above_1, remedy="set train.accumulate to 2 or more"),
    Use("train.parameter_server", _STRATEGY, ("parameter_server",), unless=_stands_in),
    Use("train.parameter_server.staleness", ".mode", ("bounded",)),
    Use("train.threads_per_shard", _STRATEGY, ("exact", "local_sgd", "federated", "parameter_server"), unless=_is_own_strategy),
    Use("train.momentum", "train.optimizer", ("sgd",)),
    Use("train.step_epochs", "train.schedule", ("step",)),
    Use("train.step_factor", "train.schedule", ("step",)),
    Use("train.sync_batch_norm", "task.batch_norm", (True,), unless=lambda config: type(config.task) is not Tabular),
    Use("task.batch_norm", ".hidden", fits=_is_given, remedy="set task.hidden to widths such as [64, 32]", of=Tabular),
    Use("task.dropout", ".hidden", fits=_is_given, remedy="set task.hidden to widths such as [64, 32]", of=Tabular),
    Use("task.embedding", "dataset.features", fits=_embeds, remedy="encode a feature by vocabulary, hash or quantile", of=Tabular),
    Use("task.temperature", ".sample_tokens", fits=_is_above_0, remedy="set task.sample_tokens, as to 200", of=Language),
    Use("task.hidden", ".network", ("dlrm",), of=Recommendation),
    Use("task.user", ".network", ("factors",), of=Recommendation),
    Use("task.item", ".network", ("factors",), of=Recommendation),
    Use("dataset.*.column", ".columns", ((),), remedy="put it into columns", of=Fourier),
    Use("source.tables.*.schema", ".format", ("csv", "json", "parquet", "text", "idx", "package"), of=Table),
    *(Use(f"registry.{name}", ".compare", (True,)) for name in ("tolerance", "confidence", "resamples", "seed")),
    Use("registry.metric", ".compare", (True,), unless=lambda config: bool(config.registry.slices)),
    *(Use(f"registry.{name}", ".slices", fits=_is_given, remedy="name columns in registry.slices")
      for name in ("slice_bound", "slice_rows")),
    Use("endpoint.follow_seconds", ".model", fits=lambda model, _: not model or "@" in model,
        remedy="set endpoint.model to an alias, models:/NAME@ALIAS"),
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """What is known of a run once there is a dataset version."""

    place: str
    """The folder of the version."""
    steps: int
    """Of the whole run."""
    validation_rows: int
    has_batch_norm: Callable[[], bool]
    """Whether the model has some; builds it."""


@dataclass(frozen=True)
class UseInRun:
    """`setting` has an effect only in a run that `fits` its value; also if it is not given, as long as the config `asks` for it."""

    setting: str
    asks: Callable[[Any], bool]
    fits: Callable[[Run, Any], bool]
    fault: str
    """In which the value and the run may stand."""


IN_RUNS = (
    UseInRun(
        "train.local_sgd.inner_steps", lambda config: config.train.strategy == "local_sgd", lambda run, inner: inner <= run.steps,
        "is {value}, but the run has only {run.steps} steps, so that no outer step would bring replicas together; lower it",
    ),
    UseInRun(
        "train.compression.start_step", lambda config: config.train.compression.kind == "powersgd", lambda run, first: first < run.steps,
        "is {value}, but the run has only {run.steps} steps, all of which would send whole gradients; lower it, or remove compression",
    ),
    UseInRun(
        "train.sync_batch_norm", lambda config: config.train.sync_batch_norm, lambda run, _: run.has_batch_norm(),
        "is true, but the model has no batch norm; remove it, or use a model that has, such as task.batch_norm of tabular",
    ),
    UseInRun(
        "train.monitor", lambda config: bool(config.train.monitor), lambda run, _: run.validation_rows > 0,
        "is {value}, but the split validation of {run.place} has no rows; unset it, or add the split",
    ),
    UseInRun(
        "train.early_stopping", lambda config: bool(config.train.early_stopping), lambda run, _: run.validation_rows > 0,
        "is {value}, but the split validation of {run.place} has no rows; unset it, or add the split",
    ),
)  # fmt: skip


def without_effect_in(config: Any, run: Run) -> Iterator[tuple[str, str]]:
    """Dotted name and fault of every setting that has no effect in this run."""
    for use in IN_RUNS:
        if use.asks(config) and not use.fits(run, value := _at(config, use.setting)):
            yield use.setting, use.fault.format(value=value, run=run)


def without_effect(config: Any) -> Iterator[tuple[str, str]]:
    """Dotted name and fault of every setting that is given and has no effect; of a whole section, only the section.

    A config that names every setting of `train` was written by a program, as the config in a run is: a default is nobody's choice there.
    """
    is_written_out = config.train.model_fields_set >= type(config.train).model_fields.keys()
    yield from _without_effect(config, config, "", is_written_out)


def _without_effect(config: Any, section: BaseModel, prefix: str, is_written_out: bool) -> Iterator[tuple[str, str]]:
    for field, value in _chosen(section, is_written_out):
        name = f"{prefix}{type(section).model_fields[field].alias or field}"
        uses = (use for use in TABLE if use.concerns(name, section, value))
        if fault := next(filter(None, (use.fault(name, config, section, value) for use in uses)), ""):
            yield name, fault
            continue
        inner = value if isinstance(value, Mapping) else {"": value}
        for key, each in inner.items():
            if isinstance(each, BaseModel):
                yield from _without_effect(config, each, f"{name}.{key}." if key else f"{name}.", is_written_out)


def _chosen(section: BaseModel, is_written_out: bool) -> Iterator[tuple[str, Any]]:
    """The settings of a section that somebody has given, and that ask for something."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        is_default = is_written_out and value == field.get_default(call_default_factory=True)
        if name in section.model_fields_set and not is_default and not _asks_for_nothing(value, field.default, is_written_out):
            yield name, value


def _asks_for_nothing(value: Any, default: Any, is_written_out: bool) -> bool:
    if isinstance(value, Section):
        return next(_chosen(value, is_written_out), None) is None
    return default is not True and any(value == nothing and type(value) is type(nothing) for nothing in _NOTHING)


def _at(config: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        config = getattr(config, name, None)
    return config


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
