"""The values of masks, and the classes that they stand for."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.config.messages.counting import show_count
from pipelines.data.features.media.file_kinds import UnreadableError
from pipelines.errors import ConfigError

_EXAMPLES = 5
_COUNTED_VALUES = 2**16
"""Values that differ by less are counted without sorting them."""


@dataclass(frozen=True)
class MaskFiles:
    """How the masks of a kind are read, and called."""

    unit: str
    """In the singular."""
    read: Callable[[bytes], np.ndarray]
    """Whole numbers of any shape. Raises UnreadableError."""
    remedy: str
    """What to do if none can be read."""
    most_values: int
    """More cannot stand for classes."""


@dataclass(frozen=True)
class MaskValues:
    """The values of a sample of masks."""

    counts: Counter[int]
    """Pixels by value."""
    shapes: tuple[tuple[int, ...], ...]
    """Of each mask that can be read."""

    @property
    def most_frequent(self) -> int:
        return min(self.counts, key=lambda value: (-self.counts[value], value))

    def shares(self, values: Iterable[int]) -> str:
        total = self.counts.total()
        return ", ".join(f"{value} in {self.counts[value] / total:.1%}" for value in values)


def count_values(path: str, masks: Iterable[tuple[str, bytes]], files: MaskFiles) -> MaskValues:
    """Count the values of masks, given as names and contents. Raises ConfigError if they cannot stand for classes."""
    counts, shapes, fault = Counter[int](), list[tuple[int, ...]](), ""
    for name, content in masks:
        try:
            values = files.read(content)
        except UnreadableError as error:
            fault = fault or f"{name}: {error}"
            continue
        counts.update(_count(values))
        shapes.append(values.shape)
    if not shapes:
        raise ConfigError(f"{path}: no {files.unit} can be read, such as {fault}; {files.remedy}")
    if not 2 <= len(counts) <= files.most_values:
        examples = ", ".join(map(str, sorted(counts)[:_EXAMPLES]))
        raise ConfigError(
            f"{path}: {len(shapes)} {files.unit}s have {show_count(len(counts), 'value')}, such as {examples}, and 2 to "
            f"{files.most_values} can stand for classes; save {files.unit}s with a value for each class, without smoothed edges; if they "
            f"are no {files.unit}s, rename their folder"
        )
    return MaskValues(counts, tuple(shapes))


def name_classes(values: Iterable[int], background: int, names: Mapping[int, str] | None = None) -> dict[str, Any]:
    """The settings `classes` and `values`: the background, then the other values by size. A value without a name is
    `foreground` if it is the only one beside the background, else `value_N`."""
    foreground = sorted(set(values) - {background})
    default_names = {foreground[0]: "foreground"} if len(foreground) == 1 else {value: f"value_{value}" for value in foreground}
    classes = {background: "background", **default_names, **(names or {})}
    return {"classes": [classes[value] for value in (background, *foreground)], "values": [background, *foreground]}


def _count(values: np.ndarray) -> dict[int, int]:
    """Pixels by value."""
    least = int(values.min())
    if int(values.max()) - least < _COUNTED_VALUES:
        counts = np.bincount(values.ravel() - least)
        return {least + place: int(counts[place]) for place in np.flatnonzero(counts).tolist()}
    return dict(zip(*(numbers.tolist() for numbers in np.unique(values, return_counts=True)), strict=True))
