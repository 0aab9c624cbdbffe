"""`auto`, and names with `*` that stand for many columns of the query."""

import re
from typing import ClassVar, Literal

from pipelines.config.features.base import EncoderSettings

COLUMN_KINDS = ("number", "text", "boolean", "time", "array")
"""Kinds of columns that a pattern may end with, behind a colon."""


class AutoSettings(EncoderSettings):
    """The encoders that `lockstep init` would choose for the column, one or two, from the rows of the training split; for texts `sequence`.
    ETL chooses when it makes a version, and the manifest has the choice. In a pattern, constants, identifiers, near copies of the target
    and columns that no encoder takes are left out, each with its reason in the log and the manifest."""

    implementation: ClassVar[str] = ""
    encoder: Literal["auto"] = "auto"


def is_pattern(name: str) -> bool:
    """Whether the name of a feature stands for columns of the query."""
    return "*" in name


def split_pattern(name: str) -> tuple[re.Pattern[str], str]:
    """The look of the columns' names, and their kind, which may be empty: `sensor_*:number` has both."""
    pattern, colon, kind = name.rpartition(":")
    if not colon or kind not in COLUMN_KINDS or not is_pattern(pattern):
        pattern, kind = name, ""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL), kind


def matches_name(pattern: str, column: str) -> bool:
    """Whether the pattern may stand for a column of this name."""
    return split_pattern(pattern)[0].fullmatch(column) is not None
