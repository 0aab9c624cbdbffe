"""Which settings have an effect only beside certain others: one table, and one rule, that a setting which is given has an effect.

A setting is given if the file or a flag names it, even with its default, unless its value asks for nothing: false, null, none, 0,
or nothing at all. Without the rule a run with `momentum: 0.5` and `optimizer: adamw` looks in MLflow as if it had momentum.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel

from pipelines.config.effect_rules import (
    NOTHING,
    PlannedRun,
    Use,
    UseInRun,
    has_epochs,
    is_above_0,
    is_given,
    is_on_one_worker,
    is_range,
    is_several,
    setting_at,
)
from pipelines.config.features import FourierSettings, WordsSettings
from pipelines.config.section import Section
from pipelines.config.source.source import Table
from pipelines.config.tasks.forecasting import TRANSFORMER_SETTINGS, ForecastingSettings
from pipelines.config.tasks.language import LanguageSettings
from pipelines.config.tasks.segmentation import SegmentationSettings
from pipelines.config.tasks.tabular import NumberEmbedding, TabularSettings
from pipelines.config.tasks.task import KINDS, RecommendationSettings, SeriesTaskSettings, TextSettings
from pipelines.config.tasks.trees import TreesSettings
from pipelines.config.train.strategies import strategy_kinds_with


def _embeds(features: Mapping[str, Any], _: Any) -> bool:
    return any(settings.encoder in ("vocabulary", "hash", "quantile", "auto") or ":" in settings.encoder for settings in features.values())


def _has_numbers(features: Mapping[str, Any], _: Any) -> bool:
    return any(
        settings.encoder in ("standardize", "minmax", "log1p", "normal_quantile", "robust", "auto")
        or (settings.encoder == "identity" and not settings.shape)
        or ":" in settings.encoder
        for settings in features.values()
    )


def _has_sequence(features: Mapping[str, Any], _: Any) -> bool:
    return any(settings.encoder in ("sequence", "tokenizer", "auto") or ":" in settings.encoder for settings in features.values())


def _has_terms(features: Mapping[str, Any], _: Any) -> bool:
    return any(settings.encoder == "terms" or ":" in settings.encoder for settings in features.values())


def _reaches_cutoffs(features: Mapping[str, Any], cutoffs: tuple[int, ...]) -> bool:
    """Whether a vocabulary of words, with the end of a document and the unknown word, may have a word in the last cluster."""
    return all(settings.vocabulary + 2 > cutoffs[-1] for settings in features.values() if isinstance(settings, WordsSettings))


def _set_strategy(attribute: str) -> str:
    return f"set train.strategy to {' or '.join(strategy_kinds_with(attribute))}"


def _set_kind_that_smooths() -> str:
    return f"set task.kind to {' or '.join(kind for kind, settings in KINDS.items() if settings.smooths_labels)}"


TABLE = (
    Use("train.resize_seconds", "train.workers", fits=is_range, unless=is_on_one_worker,
        remedy="set train.workers to a range such as [1, 4]"),
    Use("train.balance.kind", "train.workers", fits=is_several, remedy="set train.workers to 2 or more", values=("auto",)),
    Use("train.balance.kind", "train.strategy", fits=lambda strategy, _: strategy.balances, remedy=partial(_set_strategy, "balances"),
        values=("auto",)),
    Use("train.ema_decay", "train.strategy", fits=lambda strategy, _: strategy.averages, remedy=partial(_set_strategy, "averages")),
    Use("train.profile.ranks", ".steps", fits=is_given, remedy="set train.profile.steps to the first and the last, such as [50, 60]"),
    Use("train.profile.memory", ".steps", fits=is_given, remedy="set train.profile.steps to the first and the last, such as [50, 60]"),
    Use("train.shuffle_window", "train.shuffle", (True,)),
    *(Use(f"train.{name}", "train.strategy", fits=lambda strategy, _: strategy.reads_in_order,
          remedy=partial(_set_strategy, "reads_in_order")) for name in ("shuffle_window", "remainder")),
    Use("train.momentum", "train.optimizer", ("sgd",)),
    # Only while nobody has chosen the epochs: a config with enough of them is tried with few.
    Use("train.schedule", "train.epochs", values=("step",), unless=lambda config: has_epochs(config, config.train.step_epochs),
        remedy="set train.epochs to more than train.step_epochs"),
    Use("train.early_stopping", "train.epochs", unless=lambda config: has_epochs(config, (config.train.early_stopping or 0) + 1),
        remedy="set train.epochs to early_stopping + 2 or more"),
    Use("train.step_epochs", "train.schedule", ("step",)),
    Use("train.lr_gamma", "train.schedule", ("step",)),
    Use("train.sync_batch_norm", "task.batch_norm", (True,), unless=lambda config: type(config.task) is not TabularSettings),
    Use("task.batch_norm", ".hidden", fits=is_given, remedy="set task.hidden to widths such as [64, 32]", section_class=TabularSettings),
    Use("task.dropout", ".hidden", fits=is_given, remedy="set task.hidden to widths such as [64, 32]", section_class=TabularSettings),
    Use("task.embedding", "dataset.features", fits=_embeds, remedy="encode a feature by vocabulary, hash or quantile",
        section_class=TabularSettings),
    Use("task.terms_width", "dataset.features", fits=_has_terms, remedy="encode a feature by terms", section_class=TabularSettings),
    Use("task.terms", "dataset.features", fits=_has_terms, remedy="encode a feature by terms", section_class=TreesSettings),
    Use("task.number_embedding.kind", "dataset.features", fits=_has_numbers, remedy="encode a feature as a number, as by normal_quantile",
        section_class=NumberEmbedding),
    *(Use(f"task.number_embedding.{name}", ".kind", kinds, section_class=NumberEmbedding) for name, kinds in (
        ("width", ("piecewise", "periodic")), ("bins", ("piecewise",)), ("frequencies", ("periodic",)), ("scale", ("periodic",)))),
    *(Use(f"task.{name}", "dataset.features", fits=_has_sequence, remedy="encode a feature by sequence", section_class=TextSettings)
      for name in ("embedding", "widths", "filters", "dropout")),
    Use("task.kernel", ".network", ("dlinear",), section_class=ForecastingSettings),
    *(Use(f"task.{name}", ".network", ("transformer",), section_class=ForecastingSettings) for name in TRANSFORMER_SETTINGS),
    Use("task.heads", ".network", ("gpt",), section_class=LanguageSettings),
    Use("task.cutoffs", "dataset.features", fits=_reaches_cutoffs, remedy="raise the vocabulary of words above the last of them",
        section_class=LanguageSettings),
    Use("task.temperature", ".sample_tokens", fits=is_above_0, remedy="set task.sample_tokens, as to 200", section_class=LanguageSettings),
    Use("task.elastic_points", ".elastic", fits=is_above_0, remedy="set task.elastic, as to 4", section_class=SegmentationSettings),
    Use("task.patches_per_row", ".patch", fits=is_given, remedy="set task.patch to a size such as [256, 256]",
        section_class=SegmentationSettings, unless=lambda config: bool(config.task.flips or config.task.elastic or config.task.jitter)),
    Use("task.hidden", ".network", ("dlrm",), section_class=RecommendationSettings),
    Use("task.filters", ".network", ("convolution",), section_class=SeriesTaskSettings),
    Use("task.kernels", ".network", ("rocket",), section_class=SeriesTaskSettings),
    Use("task.user", ".network", ("factors",), section_class=RecommendationSettings),
    Use("task.item", ".network", ("factors",), section_class=RecommendationSettings),
    Use("task.quantiles", ".loss", ("quantiles",)),
    Use("task.label_smoothing", "task", fits=lambda task, _: task.smooths_labels, remedy=_set_kind_that_smooths),
    Use("dataset.*.column", ".columns", ((),), remedy="put it into columns", section_class=FourierSettings),
    Use("source.tables.*.schema", ".format", ("csv", "json", "parquet", "text", "idx", "package", "excel", "sqlite"), section_class=Table),
    *(Use(f"registry.{name}", ".compare", (True,)) for name in ("tolerance", "confidence", "resamples", "seed")),
    Use("registry.metric", ".compare", (True,), unless=lambda config: bool(config.registry.slices)),
    *(Use(f"registry.{name}", ".slices", fits=is_given, remedy="name columns in registry.slices")
      for name in ("slice_bound", "slice_rows")),
    Use("endpoint.follow_seconds", ".model", fits=lambda model, _: not model or "@" in model,
        remedy="set endpoint.model to an alias, models:/NAME@ALIAS"),
)  # fmt: skip
"""A strategy's settings add their own rows, `uses` and `uses_in_runs`."""

IN_RUNS = (
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


def ineffective_settings_in_run(config: Any, run: PlannedRun) -> Iterator[tuple[str, str]]:
    """Dotted name and fault of every setting that has no effect in this run."""
    for use in (*IN_RUNS, *config.train.strategy.uses_in_runs):
        if use.asks(config) and not use.fits(run, value := setting_at(config, use.setting)):
            yield use.setting, use.fault.format(value=value, run=run)


def has_effect(config: Any, name: str) -> bool:
    """Whether the setting of this dotted name, given or not, has an effect beside the others: those without one are not recorded."""
    section, parts = config, name.split(".")
    for number, part in enumerate(parts, 1):
        if not isinstance(section, BaseModel) or not hasattr(section, part):
            break  # a key of a mapping, which has no rule of its own
        value, setting = getattr(section, part), ".".join(parts[:number])
        uses = (use for use in (*TABLE, *config.train.strategy.uses) if use.concerns(setting, section, value))
        if any(use.fault(setting, config, section, value) for use in uses):
            return False
        section = value
    return True


def ineffective_settings(config: Any) -> Iterator[tuple[str, str]]:
    """Dotted name and fault of every setting that is given and has no effect; of a whole section, only the section.

    A config that names every setting of `train` was written by a program, as the config in a run is: a default is nobody's choice there.
    """
    is_written_out = config.train.model_fields_set >= type(config.train).model_fields.keys()
    yield from _ineffective_in_section(config, config, "", is_written_out)


def _ineffective_in_section(config: Any, section: BaseModel, prefix: str, is_written_out: bool) -> Iterator[tuple[str, str]]:
    for field, value in _explicit_settings(section, is_written_out):
        name = f"{prefix}{type(section).model_fields[field].alias or field}"
        uses = (use for use in (*TABLE, *config.train.strategy.uses) if use.concerns(name, section, value))
        if fault := next(filter(None, (use.fault(name, config, section, value) for use in uses)), ""):
            yield name, fault
            continue
        inner = value if isinstance(value, Mapping) else {"": value}
        for key, inner_section in inner.items():
            if isinstance(inner_section, BaseModel):
                yield from _ineffective_in_section(config, inner_section, f"{name}.{key}." if key else f"{name}.", is_written_out)


def _explicit_settings(section: BaseModel, is_written_out: bool) -> Iterator[tuple[str, Any]]:
    """The settings of a section that somebody has given, and that ask for something."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        is_default = is_written_out and value == field.get_default(call_default_factory=True)
        if name in section.model_fields_set and not is_default and not _asks_for_nothing(value, field.default, is_written_out):
            yield name, value


def _asks_for_nothing(value: Any, default: Any, is_written_out: bool) -> bool:
    if isinstance(value, Section):
        return next(_explicit_settings(value, is_written_out), None) is None
    return default is not True and any(value == nothing and type(value) is type(nothing) for nothing in NOTHING)
