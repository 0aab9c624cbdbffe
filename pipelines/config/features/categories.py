"""Settings of the encoders for categorical values, and for the words and terms of texts."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from pipelines.config.features.base import EncoderSettings
from pipelines.config.section import Text


class VocabularySettings(EncoderSettings):
    """Number of the value as int32, numbered from 1 by descending frequency; 0 for NULL, rare and unseen values."""

    implementation: ClassVar[str] = "pipelines.data.features.categories:Vocabulary"
    kind_of_values: ClassVar[str] = "category"
    encoder: Literal["vocabulary"] = "vocabulary"
    min_count: PositiveInt = 1
    """Values with fewer occurrences in the training split are encoded as 0."""
    max_size: PositiveInt = 1_000_000
    """Maximum number of values; the most frequent ones are kept."""


class SequenceSettings(EncoderSettings):
    """The words of a text, or the elements of an array, as numbers: int32 of a fixed length. 0 is padding, 1 stands for rare and
    unseen words and for NULL elements of an array, and the other words are numbered from 2 by descending frequency. A text or
    array that is NULL is quarantined.

    A word is a run of letters, digits and `_`, with the apostrophe before it if there is one. Any other character except
    whitespace is a word of its own: `It's 9.5 %` has the words `It`, `'s`, `9`, `.`, `5`, `%`. For other rules, use `split(…)` in
    the query.
    """

    implementation: ClassVar[str] = "pipelines.data.features.text_encoders:Sequence"
    kind_of_values: ClassVar[str] = "sequence"
    encoder: Literal["sequence"] = "sequence"
    length: PositiveInt
    """Number of words; longer texts are truncated, shorter ones padded."""
    keep: Literal["first", "last"] = "first"
    """Which words of a longer text are kept. `last` also puts the padding first, so that the end of a history is always in place."""
    lowercase: bool = True
    """Converts the words of a text to lower case; elements of an array are not changed."""
    min_count: PositiveInt = 1
    """Words with fewer occurrences in the training split are encoded as 1."""
    max_size: PositiveInt = 1_000_000
    """Maximum number of words; the most frequent ones are kept."""
    vocabulary_of: tuple[Text, ...] = ()
    """Columns whose words are counted together, for features that share a vocabulary; by default, the encoded column."""

    def learns_from(self, feature: str) -> tuple[str, ...]:
        return self.vocabulary_of or self.inputs(feature)


class HashSettings(EncoderSettings):
    """Hash of the value modulo `buckets`, as int32; NULL is hashed like a value. For columns with too many values for a vocabulary."""

    implementation: ClassVar[str] = "pipelines.data.features.categories:Hash"
    kind_of_values: ClassVar[str] = "category"
    encoder: Literal["hash"] = "hash"
    buckets: Annotated[int, Field(ge=2, le=2**31 - 1)]
    """Number of buckets; values in the same bucket cannot be distinguished."""


class BinarySettings(EncoderSettings):
    """true and false, or 1 and 0, as uint8."""

    implementation: ClassVar[str] = "pipelines.data.features.categories:Binary"
    kind_of_values: ClassVar[str] = "flag"
    encoder: Literal["binary"] = "binary"


class LabelSettings(EncoderSettings):
    """Number of the class in the sorted list of classes of the training split, as int64; rows with an unseen class are quarantined."""

    implementation: ClassVar[str] = "pipelines.data.features.categories:Label"
    kind_of_values: ClassVar[str] = "class"
    encoder: Literal["label"] = "label"
    order: tuple[Text, ...] = Field(default=(), exclude_if=lambda order: not order)
    """All classes, lowest first, as `task.loss` ordinal needs them, such as [low, medium, high]; rows with another class are quarantined.
    By default, whole numbers are sorted as numbers, and all others as text."""

    @model_validator(mode="after")
    def _order_has_each_class_once(self) -> "LabelSettings":
        if twice := sorted({name for name in self.order if self.order.count(name) > 1}):
            raise ValueError(f"order names {', '.join(twice)} more than once; name each class once")
        return self


Lengths = tuple[Annotated[int, Field(ge=1, le=8)], ...]


class TermsSettings(EncoderSettings):
    """The terms of a text, a sparse bag: pairs of a term's number and how often the text has it, int32 of shape (length, 2). Terms are
    numbered from 1, by the number of texts of the training split that have them, and 0 is free. Others are left out, so a text may have
    none. NULL is quarantined.

    A term is a run of words, as `sequence` has them, or of the characters of a word between `<` and `>`.
    """

    implementation: ClassVar[str] = "pipelines.data.features.text_encoders:Terms"
    kind_of_values: ClassVar[str] = "terms"
    encoder: Literal["terms"] = "terms"
    words: Lengths = (1, 2)
    """Numbers of consecutive words that make a term; an empty list for none."""
    characters: Lengths = ()
    """Numbers of consecutive characters of a word that make a term, such as [3, 4, 5]; an empty list for none."""
    length: PositiveInt = 512
    """Number of different terms of a text; of one that has more, the terms that fewest texts have are left out."""
    lowercase: bool = True
    """Converts words to lower case."""
    min_count: PositiveInt = 2
    """Terms that fewer texts of the training split have are left out."""
    max_size: PositiveInt = 200_000
    """Maximum number of terms; those that most texts have are kept."""

    @model_validator(mode="after")
    def _some_terms(self) -> "TermsSettings":
        if not self.words and not self.characters:
            raise ValueError("words and characters are both empty; set words to [1], for example")
        for name, lengths in (("words", self.words), ("characters", self.characters)):
            if list(lengths) != sorted(set(lengths)):
                raise ValueError(f"{name} is {list(lengths)}; name each length once, the smallest first, such as {sorted(set(lengths))}")
        return self
