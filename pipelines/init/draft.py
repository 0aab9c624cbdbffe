"""The draft of a config, as plain values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LEFT_OUT = "Left out"
"""Begin of the lines of comments that name columns which are no features."""
KeyPath = tuple[str, ...]
"""The keys from the top of a config to a setting: `("dataset", "features", "age")`."""


@dataclass(frozen=True)
class Draft:
    """A config that no one has edited yet. Its text is a pure function of it, and it is one of the data."""

    sections: Mapping[str, Any]
    """The config as YAML reads it: `name`, `source`, `dataset`, `task` and `train`, in the order of the file."""
    introduction: tuple[str, ...] = ()
    """Lines of the comment at the top: what the data are."""
    comments: Mapping[KeyPath, str] = field(default_factory=dict)
    """Reasons by setting. One of a setting that fills one line stands behind it, any other above it, line by line."""
    assumptions: tuple[str, ...] = ()
    """Doubts, each with what was assumed and how to change it, for the reader of the command's output."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The doubts, and which columns are left out and why, for those who do not see the text."""
        lines = (line for comment in self.comments.values() for line in comment.splitlines())
        return (*self.assumptions, *(line for line in lines if line.startswith(LEFT_OUT)))


Announce = Callable[[Mapping[str, Any]], None]
"""Takes the sections of a config whose `source` and `dataset` will hardly change any more."""


@dataclass(frozen=True)
class Request:
    """Arguments of the command."""

    data: str
    """Path of a file or a folder, as it is to stand in the config."""
    target: str
    """Name of the column to predict; empty if it is to be chosen."""
    name: str
    """Name of the pipeline, of its folder of datasets, and of its table."""
    skip_rows: int | None = None
    """Lines of a text, or rows of a sheet, before the names of the columns; None if that is to be found out."""
    announce: Announce = lambda sections: None
    """Is called as soon as the dataset is drafted, before models are tried, so that the draft can be tried meanwhile."""


Drafter = Callable[[Request], Draft | None]
"""Drafts the config of data of one kind; None for data of another kind. Raises ConfigError or SourceError for data of this kind that no
config can be made of."""
