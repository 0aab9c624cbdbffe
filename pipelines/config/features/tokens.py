"""Settings of the encoders that pack texts into windows of tokens."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from pipelines.config.features.base import EncoderSettings


class Tokens(EncoderSettings):
    """Text as numbers, packed: the documents of a part end to end, 0 behind each, cut into windows of one length."""

    packs: ClassVar[bool] = True
    length: PositiveInt
    """Tokens that a window predicts. It has one more in front: the last one of the window before."""


class Bytes(Tokens):
    """A token for each byte of UTF-8."""

    implementation: ClassVar[str] = "pipelines.features.tokens:Bytes"
    encoder: Literal["bytes"] = "bytes"


class Characters(Tokens):
    """A token for each character of the training split, and one for all others."""

    implementation: ClassVar[str] = "pipelines.features.tokens:Characters"
    encoder: Literal["characters"] = "characters"


class Bpe(Tokens):
    """Byte pairs, merged as often as they met in the training split (Sennrich et al. 2016), by Hugging Face tokenizers."""

    implementation: ClassVar[str] = "pipelines.features.bpe:Bpe"
    encoder: Literal["bpe"] = "bpe"
    vocabulary: Annotated[int, Field(ge=258, le=65_536)] = 4_096
    """Tokens at most: 256 bytes, the end of a document, and merges."""
