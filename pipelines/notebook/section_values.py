"""Plain values, as a YAML file has them, of sections that Python has built."""

from collections.abc import Mapping
from typing import Any

from pipelines.config.section import Section
from pipelines.notebook.function_source import function_task


def task_values(task: Any) -> dict[str, Any]:
    """The values of `task` for a name of a kind, a mapping, a section, or a function that returns the network."""
    if isinstance(task, str):
        return {"kind": task}
    if isinstance(task, Section):
        return {"kind": task.kind, **section_values(task)} if hasattr(task, "kind") else section_values(task)
    return {name: section_values(value) for name, value in task.items()} if isinstance(task, Mapping) else function_task(task)


def section_values(value: Any) -> Any:
    """A section as a mapping of the settings that were given, a tuple as a list; also within mappings and lists."""
    if isinstance(value, Section):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, Mapping):
        return {name: section_values(inner) for name, inner in value.items()}
    return [section_values(inner) for inner in value] if isinstance(value, list | tuple) else value
