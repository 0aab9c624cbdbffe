"""Settings of the encoders of values that are told apart and not measured, and of the words of texts."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from pipelines.config.features.base import EncoderSettings
from pipelines.config.section import Text


class Vocabulary(EncoderSettings):
    """The value's number, most frequent first, int32; 0 is NULL, rare and unseen values."""

    implementation: ClassVar[str] = "pipelines.features.categories:Vocabulary"
    encoder: Literal["vocabulary"] = "vocabulary"
    min_count: PositiveInt = 1
    """Values rarer than this in the training split are 0."""
    max_size: PositiveInt = 1_000_000
    """Only so many of the most frequent values are kept."""


class Sequence(EncoderSettings):
    """The words of a text, or the elements of an array, as their numbers: int32 of a fixed length. 0 fills what a shorter
    one leaves free, 1 is rare and unseen words and a NULL among an array's elements, and the others follow, most frequent
    first. A text or array that is NULL itself is quarantined.

    A word is a run of letters, digits and `_`, with an apostrophe in front if there is one; any other character but a blank is
    a word by itself: `It's 9.5 %` has the words `It`, `'s`, `9`, `.`, `5`, `%`. `split(…)` in the query cuts differently.
    """

    implementation: ClassVar[str] = "pipelines.features.sequences:Sequence"
    encoder: Literal["sequence"] = "sequence"
    length: PositiveInt
    """Longer ones are cut to it."""
    keep: Literal["first", "last"] = "first"
    """Which words of a longer one stay. `last` suits histories: it puts what is free in front, so that the end stays in place."""
    lowercase: bool = True
    """Of the words of a text; the elements of an array are taken as they are."""
    min_count: PositiveInt = 1
    """Words rarer than this in the training split are 1."""
    max_size: PositiveInt = 1_000_000
    """Only so many of the most frequent words are kept."""
    vocabulary_of: tuple[Text, ...] = ()
    """Columns whose words are counted together, for features that share their numbers; by default the one that is encoded."""

    def learns_from(self, feature: str) -> tuple[str, ...]:
        return self.vocabulary_of or self.inputs(feature)


class Hash(EncoderSettings):
    """The value's hash modulo `buckets`, int32; NULL is a value too. For columns too large for a vocabulary."""

    implementation: ClassVar[str] = "pipelines.features.categories:Hash"
    encoder: Literal["hash"] = "hash"
    buckets: Annotated[int, Field(ge=2, le=2**31 - 1)]
    """Numbers there are; values that share one are not told apart."""


class Binary(EncoderSettings):
    """true and false, 1 and 0, as uint8."""

    implementation: ClassVar[str] = "pipelines.features.categories:Binary"
    encoder: Literal["binary"] = "binary"


class Label(EncoderSettings):
    """A class's number in the sorted list of the training split's classes, int64; an unseen class is quarantined."""

    implementation: ClassVar[str] = "pipelines.features.categories:Label"
    encoder: Literal["label"] = "label"
