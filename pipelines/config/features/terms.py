"""Settings of the encoder for the terms of texts, whatever their order."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from pipelines.config.features.base import EncoderSettings

Lengths = tuple[Annotated[int, Field(ge=1, le=8)], ...]


class TermsSettings(EncoderSettings):
    """The terms of a text, a sparse bag: pairs of a term's number and how often the text has it, int32 of shape (length, 2). Terms are
    numbered from 1, by the number of texts of the training split that have them, and 0 is free. Others are left out, so a text may have
    none. NULL is quarantined.

    A term is a run of words, as `sequence` has them, or of the characters of a word between `<` and `>`.
    """

    implementation: ClassVar[str] = "pipelines.data.features.text.terms:Terms"
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
