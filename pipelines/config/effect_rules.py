"""Rules by which a setting has an effect only beside certain others, or only in certain runs. `effects` has those of the whole config; a
strategy's settings bring their own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel

from pipelines.config.section import Section, shown

NOTHING: tuple[Any, ...] = (None, False, "none", "", (), {}, 0, 0.0)
"""Values that ask for nothing."""


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
    remedy: str | Callable[[], str] = ""
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
        other = getattr(section, beside.rpartition(".")[2]) if self.beside.startswith(".") else setting_at(config, beside)
        if (self.fits(other, value) if self.fits else other in self.among) or self.unless(config):
            return ""
        remedy = (self.remedy if isinstance(self.remedy, str) else self.remedy()) or f"set {beside} to {_choice(self.among)}"
        given = "" if isinstance(value, BaseModel | Mapping) else f" (got {shown(as_list(value))})"
        of_other = "" if isinstance(other, Mapping) else f" while {beside} is {shown(as_list(getattr(other, 'kind', other)))}"
        return f"has no effect{of_other}; {remedy}, or remove {last}{given}"


def _choice(values: tuple[Any, ...]) -> str:
    return " or ".join(map(shown, values))


def is_range(workers: Any, _: Any) -> bool:
    return not isinstance(workers, int)


def is_several(workers: Any, _: Any) -> bool:
    return (workers if isinstance(workers, int) else workers[1]) > 1


def is_given(beside: Any, _: Any) -> bool:
    return beside not in NOTHING


def is_above_0(beside: Any, _: Any) -> bool:
    return bool(beside > 0)


def is_above_1(beside: Any, _: Any) -> bool:
    return bool(beside > 1)


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


def setting_at(config: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        config = getattr(config, name, None)
    return config


def as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
