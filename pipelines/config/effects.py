"""The rule that a setting which is given has an effect. Beside what it has one, a setting says in its annotation:

    momentum: Annotated[float, OnlyWith("train.optimizer", ("sgd",))] = 0.9

A setting is given if the file or a flag names it, even with its default, unless its value asks for nothing: false, null, none, 0,
or nothing at all. Without the rule a run with `momentum: 0.5` and `optimizer: adamw` looks in MLflow as if it had momentum.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from pipelines.config.messages.validation_errors import show_value
from pipelines.config.section import Section

NOTHING: tuple[Any, ...] = (None, False, "none", "", (), {}, 0, 0.0)
"""Values that ask for nothing, and so need no effect."""


@dataclass(frozen=True)
class OnlyWith:
    """In the annotation of a setting: it has an effect only while another one has one of the values `among`; or, if `fits` is given, a
    value that fits, of which `among` are then the usual ones."""

    other: str
    """Dotted name; with a dot first, it is a setting of the same section."""
    among: tuple[Any, ...] | Callable[[], tuple[Any, ...]] = ()
    """A function where slices and other packages add values."""
    fits: Callable[[Any, Any], bool] | None = None
    """A function of the other setting's value and of the setting's own."""
    remedy: str | Callable[[], str] = ""
    """How to give the setting an effect; by default, set `other` to one of `among`."""
    values: tuple[Any, ...] = ()
    """Values of the setting that need it; all if empty."""
    unless: Callable[[Any], bool] = lambda config: False
    """Whether it has an effect in this config all the same."""

    def fault(self, name: str, config: BaseModel, section: BaseModel, value: Any) -> str:
        """Why the setting of this dotted name has no effect, and what gives it one; empty if it has."""
        prefix, _, last = name.rpartition(".")
        is_beside = self.other.startswith(".")
        other = f"{prefix}{self.other}" if is_beside else self.other
        other_value = _setting_at(section, self.other[1:]) if is_beside else _setting_at(config, other)
        if (self.values and value not in self.values) or self.unless(config):
            return ""
        among = self.among if isinstance(self.among, tuple) else self.among()
        if self.fits(other_value, value) if self.fits else other_value in among:
            return ""
        remedy = self.remedy if isinstance(self.remedy, str) else self.remedy()
        remedy = remedy or f"set {other} to {' or '.join(map(show_value, among))}"
        value_text = "" if isinstance(value, BaseModel | Mapping) else f" (got {show_value(_as_list(value))})"
        other_text = "" if isinstance(other_value, Mapping) else show_value(_as_list(getattr(other_value, "kind", other_value)))
        cause = other_text and f" while {other} is {other_text}"
        return f"has no effect{cause}; {remedy}, or remove {last}{value_text}"


@dataclass(frozen=True)
class PlannedRun:
    """A run before it starts, once there is a dataset version."""

    place: str
    """The folder of the version."""
    steps: int
    """Number of steps of the whole run."""
    validation_rows: int
    has_batch_norm: Callable[[], bool]
    """Whether the model has some; builds it."""


@dataclass(frozen=True)
class OnlyInRun:
    """In the annotation of a setting: it has an effect only in a run that `fits` its value; also if it is not given, as long as the config
    `asks` for it."""

    fits: Callable[[PlannedRun, Any], bool]
    fault: str
    """In which the value and the run may stand."""
    asks: Callable[[Any, Any], bool] = lambda section, value: bool(value)
    """A function of the setting's section and of its value."""


def is_on_one_worker(config: Any) -> bool:
    """Whether somebody chose one worker, as to try a config for several."""
    return config.train.workers == 1 and "workers" in config.train.model_fields_set


def is_given(other: Any, _: Any) -> bool:
    return other not in NOTHING


def is_above_0(other: Any, _: Any) -> bool:
    return bool(other > 0)


def is_above_1(other: Any, _: Any) -> bool:
    return bool(other > 1)


def ineffective_settings_in_run(section: BaseModel, run: PlannedRun, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted name and fault of every setting of a config, or of a section behind `prefix`, that has no effect in this run."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        for rule in field.metadata:
            if isinstance(rule, OnlyInRun) and rule.asks(section, value) and not rule.fits(run, value):
                yield f"{prefix}{name}", rule.fault.format(value=value, run=run)
        if isinstance(value, BaseModel):
            yield from ineffective_settings_in_run(value, run, f"{prefix}{name}.")


def has_effect(config: Any, name: str) -> bool:
    """Whether the setting of this dotted name, given or not, has an effect beside the others: those without one are not recorded."""
    section, parts = config, name.split(".")
    for number, part in enumerate(parts, 1):
        if not isinstance(section, BaseModel) or not hasattr(section, part):
            break  # a key of a mapping, which has no rule of its own
        value, setting = getattr(section, part), ".".join(parts[:number])
        if _fault(config, section, part, setting, value):
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
        if fault := _fault(config, section, field, name, value):
            yield name, fault
            continue
        inner = value if isinstance(value, Mapping) else {"": value}
        for key, inner_section in inner.items():
            if isinstance(inner_section, BaseModel):
                yield from _ineffective_in_section(config, inner_section, f"{name}.{key}." if key else f"{name}.", is_written_out)


def _fault(config: Any, section: BaseModel, field: str, name: str, value: Any) -> str:
    """Why the field of a section, a setting of this dotted name, has no effect; empty if it has."""
    rules = [rule for rule in type(section).model_fields[field].metadata if isinstance(rule, OnlyWith)]
    if rule_of_strategy := config.train.strategy.rules.get(name):
        rules.append(rule_of_strategy)
    return next(filter(None, (rule.fault(name, config, section, value) for rule in rules)), "")


def _explicit_settings(section: BaseModel, is_written_out: bool) -> Iterator[tuple[str, Any]]:
    """The settings of a section that somebody has given, and that ask for something."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if name not in section.model_fields_set or (is_written_out and value == field.get_default(call_default_factory=True)):
            continue
        if isinstance(value, Section):
            asks_for_nothing = not list(_explicit_settings(value, is_written_out))
        else:
            asks_for_nothing = any(value == nothing and type(value) is type(nothing) for nothing in NOTHING) and field.default is not True
        if not asks_for_nothing:
            yield name, value


def _setting_at(config: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        config = getattr(config, name, None)
    return config


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
