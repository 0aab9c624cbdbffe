"""Rules by which a setting has an effect only beside certain others, or only in certain runs. `effects` has those of the whole config; a
strategy's settings bring their own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel

from pipelines.config.messages.wording import show_value
from pipelines.config.section import Section

NOTHING: tuple[Any, ...] = (None, False, "none", "", (), {}, 0, 0.0)
"""Values that ask for nothing, and so need no effect."""


@dataclass(frozen=True)
class Use:
    """`setting` has an effect only while `other_setting` has one of the values `among`, or a value that `fits`."""

    setting: str
    """Dotted name, in which `*` stands for any name."""
    other_setting: str
    """Dotted name; with a dot first, it is a setting of the same section."""
    among: tuple[Any, ...] = ()
    fits: Callable[[Any, Any], bool] | None = None
    """A function of the other setting's value and of the setting's own."""
    remedy: str | Callable[[], str] = ""
    """How to give the setting an effect; by default, set `other_setting` to one of `among`."""
    values: tuple[Any, ...] = ()
    """Values of the setting that need it; all if empty."""
    section_class: type[Section] | None = None
    """The class of the section, where others have settings of the same name."""
    unless: Callable[[Any], bool] = lambda config: False
    """Whether it has an effect in this config all the same."""

    def concerns(self, name: str, section: BaseModel, value: Any) -> bool:
        return fnmatchcase(name, self.setting) and self.section_class in (None, type(section)) and (not self.values or value in self.values)

    def fault(self, name: str, config: BaseModel, section: BaseModel, value: Any) -> str:
        """Why the setting has no effect, and what gives it one; empty if it has."""
        prefix, _, last = name.rpartition(".")
        is_beside = self.other_setting.startswith(".")
        other_setting = f"{prefix}{self.other_setting}" if is_beside else self.other_setting
        other_value = setting_at(section, self.other_setting[1:]) if is_beside else setting_at(config, other_setting)
        if (self.fits(other_value, value) if self.fits else other_value in self.among) or self.unless(config):
            return ""
        remedy = (self.remedy if isinstance(self.remedy, str) else self.remedy()) or f"set {other_setting} to {_alternatives(self.among)}"
        value_text = "" if isinstance(value, BaseModel | Mapping) else f" (got {show_value(as_list(value))})"
        other_text = "" if isinstance(other_value, Mapping) else show_value(as_list(getattr(other_value, "kind", other_value)))
        cause = other_text and f" while {other_setting} is {other_text}"
        return f"has no effect{cause}; {remedy}, or remove {last}{value_text}"


def _alternatives(values: tuple[Any, ...]) -> str:
    return " or ".join(map(show_value, values))


def is_on_one_worker(config: Any) -> bool:
    """Whether somebody chose one worker, as to try a config for several."""
    return config.train.workers == 1 and "workers" in config.train.model_fields_set


def has_epochs(config: Any, more_than: int) -> bool:
    """Whether the training has more epochs than this, or as many as somebody chose."""
    return "epochs" in config.train.model_fields_set or bool(config.train.epochs > more_than)


def is_range(workers: Any, _: Any) -> bool:
    return not isinstance(workers, int)


def is_several(workers: Any, _: Any) -> bool:
    return (workers if isinstance(workers, int) else workers[1]) > 1


def is_given(other: Any, _: Any) -> bool:
    return other not in NOTHING


def is_above_0(other: Any, _: Any) -> bool:
    return bool(other > 0)


def is_above_1(other: Any, _: Any) -> bool:
    return bool(other > 1)


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
class UseInRun:
    """`setting` has an effect only in a run that `fits` its value; also if it is not given, as long as the config `asks` for it."""

    setting: str
    asks: Callable[[Any], bool]
    fits: Callable[[PlannedRun, Any], bool]
    fault: str
    """In which the value and the run may stand."""


def setting_at(config: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        config = getattr(config, name, None)
    return config


def as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
