"""Extends the config class for a file that names encoders or sources by import path: the same fields accept their settings too."""

from collections.abc import Mapping
from functools import cache, partial, reduce
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import Field

from pipelines.config.dataset.dataset import ColumnName, Dataset
from pipelines.config.features import ALONE, BUILT_IN, AutoSettings, EncoderSettings
from pipelines.config.messages.wording import join_keys
from pipelines.config.pipeline import Config
from pipelines.config.plugins import Settings, is_class_path, plugin_settings
from pipelines.config.section import Name, extend
from pipelines.config.source.source import TABLES, Source, TableSettings
from pipelines.config.train.strategies import strategy_kinds, strategy_section, strategy_settings_class
from pipelines.config.train.strategy import StrategySettings
from pipelines.config.train.train import Train
from pipelines.errors import ConfigError

ENCODER_MAPPINGS = ("features", "target", "passthrough")
"""Mappings of `dataset` whose values are encoders."""


def plugin_config_fields(values: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Fields of Config that must change for these values, as arguments of `extend`; empty if only built-in names are used.

    Raises ConfigError for a class that cannot be imported or is not derived from the required base class.
    """
    fields: dict[str, Any] = {}
    if tables := _plugin_settings(values, "source", ("tables",), "format", TableSettings, origin):
        table = Annotated[reduce(or_, tables, TABLES), Field(discriminator="format")]  # type: ignore[valid-type]
        source = extend(Source, tables=(dict[Name, table], Source.model_fields["tables"]))  # type: ignore[valid-type]
        fields["source"] = (source, Config.model_fields["source"])
    if encoders := _plugin_settings(values, "dataset", ENCODER_MAPPINGS, "encoder", EncoderSettings, origin):
        places: Any = {}
        for name in ENCODER_MAPPINGS:
            built_in = BUILT_IN | AutoSettings if name == "features" else BUILT_IN
            feature = Annotated[reduce(or_, encoders, built_in), Field(discriminator="encoder"), ALONE]  # type: ignore[valid-type]
            places[name] = (dict[ColumnName, feature], Dataset.model_fields[name])  # type: ignore[valid-type]
        fields["dataset"] = (extend(Dataset, **places), Config.model_fields["dataset"])
    return fields


def add_strategy_settings(model: type[Config], values: Mapping[str, Any]) -> type[Config]:
    """The config class with the settings of the strategy that the values name, for `--help`, flags and the wording of errors."""
    train = values.get("train")
    section = strategy_section(train["strategy"]) if isinstance(train, dict) and "strategy" in train else strategy_section({})
    kind = section.get("kind") if isinstance(section, dict) else None
    try:
        settings = strategy_settings_class(kind) if isinstance(kind, str) else StrategySettings
    except ValueError:  # validation reports it
        return model
    return _config_class(model, settings, kind if isinstance(kind, str) else None)


@cache
def _config_class(model: type[Config], settings: type[StrategySettings], kind: str | None) -> type[Config]:
    description = f"{Train.model_fields['strategy'].description} Kinds: {', '.join(strategy_kinds())}."
    field: Any = (settings, Field(default_factory=partial(settings, kind=kind), description=description))
    strategic = extend(Train, strategy=field)
    return extend(model, train=(strategic, Field(default_factory=strategic)))


def _plugin_settings(
    values: Mapping[str, Any], section: str, keys: tuple[str, ...], tag: str, base: type[Settings], origin: str
) -> list[type[Settings]]:
    """Settings classes that the section's entries name at `tag`. Entries of a wrong type are skipped; validation reports them."""
    by_path: dict[str, type[Settings]] = {}
    for key in keys:
        entries = inner.get(key) if isinstance(inner := values.get(section), dict) else None
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            path = entry.get(tag) if isinstance(entry, dict) else entry
            if isinstance(path, str) and is_class_path(path) and path not in by_path:
                try:
                    by_path[path] = _add_tag(plugin_settings(path, base, tag, ()), tag, path)
                except ValueError as error:
                    raise ConfigError(f"{origin}: {join_keys((section, key, str(name), tag))}: {error}") from error
    return list(by_path.values())


def _add_tag(settings: type[Settings], tag: str, path: str) -> type[Settings]:
    """The class as a member of a discriminated union, with its import path as the tag."""
    field: Any = {tag: (Literal[path], path)}
    return extend(settings, **field)
