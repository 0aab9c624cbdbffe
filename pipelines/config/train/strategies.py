"""Finds the kinds of `train.strategy`, without a list of them: each is a class of settings, of this project or of somebody else.

A folder of `pipelines.train` or `pipelines.strategies` that has a module `settings` is a kind of this project. Another package registers
one by an entry point of the group `lockstep.strategies`, `name = module:Class`. And a file may name any by its path, `module:Class`.
"""

import pkgutil
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SerializeAsAny, ValidationInfo

from pipelines.config.messages.did_you_mean import suggestion
from pipelines.config.plugins import import_settings, is_class_path
from pipelines.config.train.base import Training
from pipelines.config.train.strategy import StrategySettings

GROUP = "lockstep.strategies"
DEFAULT_KIND = "ddp"
_ROOMS = ("pipelines.train", "pipelines.strategies")
_WHAT = "a strategy's settings"


@cache
def strategy_kinds() -> dict[str, str]:
    """`module:Class` of the settings of each known kind; only those of this project's rooms and of entry points. Imports none of them."""
    built_in = {name: f"{room}.{name}.settings:Settings" for room in _ROOMS for name in _folders_with_settings(room)}
    return {
        **built_in,
        **{entry_point.name: entry_point.value for entry_point in entry_points(group=GROUP) if entry_point.name not in built_in},
    }


def _folders_with_settings(room: str) -> list[str]:
    spec = find_spec(room)
    places = list(spec.submodule_search_locations or ()) if spec else []
    folders = sorted(module.name for module in pkgutil.iter_modules(places) if module.ispkg)
    return [name for name in folders if any(inner.name == "settings" for inner in pkgutil.iter_modules([f"{at}/{name}" for at in places]))]


def strategy_settings_class(kind: str) -> type[StrategySettings]:
    """The settings class of a kind, or the one that a path names. Raises ValueError if there is none."""
    path = strategy_kinds().get(kind, kind)
    if not is_class_path(path):
        remedy = suggestion(kind, strategy_kinds())
        raise ValueError(f"must be one of {', '.join(strategy_kinds())}, or module:Class of your own{f'; {remedy}' if remedy else ''}")
    return import_settings(path, StrategySettings, _WHAT)


def strategy_kinds_with(attribute: str) -> list[str]:
    """The known kinds whose settings say so of themselves, as by `balances`; those that cannot be imported are left out."""
    kinds = []
    for kind in strategy_kinds():
        with suppress(ValueError):
            kinds += [kind] if getattr(strategy_settings_class(kind), attribute) else []
    return kinds


class _Kind(BaseModel):
    """The kind of a section, which is known."""

    kind: Annotated[str, AfterValidator(lambda kind: strategy_settings_class(kind) and kind)]


class Unavailable(StrategySettings):
    """A strategy that a run has recorded, and that this machine does not have. Its model can be used, and not be trained."""

    model_config = ConfigDict(extra="allow")
    implementation = ""

    def implementation_for(self, train: Training) -> str:
        return strategy_settings_class(self.kind).implementation  # which raises, unless it has been installed since


def strategy_section(value: Any) -> Any:
    """The section for which the name of a kind is short, and which names one in any case."""
    if isinstance(value, str):
        return {"kind": value}
    return {"kind": DEFAULT_KIND, **value} if isinstance(value, dict) else value


def _parse_settings(value: Any, info: ValidationInfo) -> Any:
    """The section as settings of the kind that it names. With `recorded` in the context, of a kind that there is no more too."""
    section = strategy_section(value)
    if not (isinstance(section, dict) and isinstance(kind := section["kind"], str)):
        return section
    try:
        settings = strategy_settings_class(kind)
    except ValueError:
        if info.context and info.context.get("recorded"):
            return Unavailable.model_validate(section)
        if isinstance(value, dict):
            _Kind.model_validate({"kind": kind})  # raises at the place of `kind`
        raise
    return settings.model_validate(section, context=info.context)


NamedStrategy = Annotated[SerializeAsAny[StrategySettings], BeforeValidator(_parse_settings)]
