"""Plain values, as a YAML file has them, of sections that Python has built."""

from collections.abc import Callable, Mapping
from typing import Any

from pipelines import config as configs
from pipelines.config import home, parse, sections
from pipelines.config.load import with_absolute_paths
from pipelines.config.section import Section
from pipelines.notebook.function_source import function_task

_TAGS = frozenset({"encoder", "format", "kind"})
"""Settings that name a section's class: a file has them, also where a class has only this value."""


def build_config(
    *,
    name: str,
    source: sections.Source | Mapping[str, Any],
    dataset: sections.Dataset | Mapping[str, Any],
    task: configs.TaskSettings | Mapping[str, Any] | str | Callable[..., Any],
    train: sections.Train | Mapping[str, Any] | None = None,
    tracking: sections.Tracking | Mapping[str, Any] | None = None,
    export: sections.Export | Mapping[str, Any] | None = None,
    endpoint: sections.Endpoint | Mapping[str, Any] | None = None,
    registry: sections.Registry | Mapping[str, Any] | None = None,
) -> configs.Config:
    """A config built in Python, equal to that of a file with these values. A section is one of `pipelines.config.sections`, or a mapping;
    a task is also a name, or a function that returns the network.

    Raises ConfigError with a line for each error. Relative paths start at LOCKSTEP_HOME, by default the current folder."""
    settings = {"train": train, "tracking": tracking, "export": export, "endpoint": endpoint, "registry": registry}
    values = config_values({"name": name, "source": source, "dataset": dataset, "task": task, **settings})
    return with_absolute_paths(parse(values, "api.Config"), home())


def config_values(sections: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a config, of its sections by name; without those that are None."""
    values = {name: task_values(value) if name == "task" else section_values(value) for name, value in sections.items()}
    return {name: value for name, value in values.items() if value is not None}


def task_values(task: Any) -> dict[str, Any]:
    """The values of `task` for a name of a kind, a mapping, a section, or a function that returns the network."""
    if isinstance(task, str):
        return {"kind": task}
    values: dict[str, Any] = section_values(task) if isinstance(task, Section | Mapping) else function_task(task)
    return values


def section_values(value: Any) -> Any:
    """A section as a mapping of the settings that were given, a tuple as a list; also within mappings and lists."""
    if isinstance(value, Section):
        fields = type(value).model_fields
        names = [name for name in fields if name in value.model_fields_set | _TAGS]
        return {fields[name].alias or name: section_values(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: section_values(inner) for name, inner in value.items()}
    return [section_values(inner) for inner in value] if isinstance(value, list | tuple) else value
