"""Base class of the settings of all encoders; `auto`, and names with `*` that stand for many columns of the query."""

import re
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pipelines.config.section import Section

COLUMN_KINDS = ("number", "text", "boolean", "time", "array")
"""Kinds of columns that a pattern may end with, behind a colon."""


class EncoderSettings(Section):
    """Base class of the settings of all encoders. Derive your own from it, in a module that imports neither torch nor Arrow."""

    implementation: ClassVar[str]
    """`module:Class` of the `pipelines.data.features.base.Encoder` that these settings configure; imported where rows are encoded."""
    packs: ClassVar[bool] = False
    """Whether the number of encoded rows differs from the number of raw rows, as with windows of documents."""
    excluded_from_identity: ClassVar[frozenset[str]] = frozenset()
    """Settings that change no row, such as where a file is whose digest is another setting."""
    kind_of_values: ClassVar[str] = ""
    """What the encoded values are for a network: category, number, sequence or terms, or anything else, such as image. Empty if they may
    be anything."""
    encoder: str
    """One of the built-in encoders, such as `standardize`, or `module:Class` of your own settings. If all other settings have their
    defaults, this name alone is enough: `age: standardize`."""
    column: str = ""
    """Column of the query to encode; by default, the column with the name of the feature."""

    @property
    def implemented_by(self) -> str:
        """The implementation; a subclass may choose it by its settings."""
        return self.implementation

    @property
    def encodes_with(self) -> tuple[str, ...]:
        """Python distributions whose version is part of a dataset version's name, because another one may encode rows differently."""
        return ()

    @property
    def distributions(self) -> tuple[str, ...]:
        """Python distributions that the implementation imports beyond those of every model, which a served one then requires too."""
        return ()

    @property
    def fault(self) -> str:
        """Why these settings do not determine how rows are encoded, as where a file is not there whose content does; empty if they do."""
        return ""

    @property
    def keeps_missing(self) -> bool:
        """Whether the encoder takes a value that is missing, and encodes it as NaN. Only some tasks take such a column."""
        return False

    def gives(self, kind: str) -> bool:
        """Whether encoded values may be of this kind."""
        return self.kind_of_values in (kind, "")

    def inputs(self, feature: str) -> tuple[str, ...]:
        """Columns of the query that the encoder of this feature reads."""
        return (self.column or feature,)

    def learns_from(self, feature: str) -> tuple[str, ...]:
        """Columns of the query that the encoder is fitted on, in the training split; by default, the columns that it reads."""
        return self.inputs(feature)


def gives_any(kind: str) -> Callable[[Any, Any], bool]:
    """A function that says of the section of features whether one of them may have values of this kind."""
    return lambda features, _: any(settings.gives(kind) for settings in features.values())


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
