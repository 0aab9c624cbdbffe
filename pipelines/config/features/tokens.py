"""Settings of the encoders that tokenize texts and pack them into windows."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from pipelines.config.features.base import EncoderSettings


class TokensSettings(EncoderSettings):
    """Packed tokens: the documents of a part file are joined, each followed by token 0, and cut into windows of equal length."""

    packs: ClassVar[bool] = True
    length: PositiveInt
    """Number of tokens that a window predicts. A window has one token more: it begins with the last token of the previous window."""


class BytesSettings(TokensSettings):
    """One token for each byte of UTF-8."""

    implementation: ClassVar[str] = "pipelines.data.features.tokens:Bytes"
    encoder: Literal["bytes"] = "bytes"


class CharactersSettings(TokensSettings):
    """One token for each character of the training split, and one for all other characters."""

    implementation: ClassVar[str] = "pipelines.data.features.tokens:Characters"
    encoder: Literal["characters"] = "characters"


class BpeSettings(TokensSettings):
    """Byte-pair encoding (Sennrich et al. 2016), trained on the training split by the tokenizers library of Hugging Face."""

    implementation: ClassVar[str] = "pipelines.data.features.tokens:Bpe"
    encoder: Literal["bpe"] = "bpe"
    vocabulary: Annotated[int, Field(ge=258, le=65_536)] = 4_096
    """Maximum number of tokens: 256 bytes, the end of a document, and merges."""
