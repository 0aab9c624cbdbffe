"""Settings of the encoders that tokenize texts, and of those that pack them into windows."""

from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from pipelines.config.features.base import EncoderSettings
from pipelines.config.paths import absolute_path, home, missing_file, read_from_folder

TOKENIZER = "tokenizer.json"


class TokensSettings(EncoderSettings):
    """Packed tokens: the documents of a part file are joined, each followed by token 0, and cut into windows of equal length."""

    packs: ClassVar[bool] = True
    length: PositiveInt
    """Number of tokens that a window predicts. A window has one token more: it begins with the last token of the previous window."""


class BytesSettings(TokensSettings):
    """One token for each byte of UTF-8."""

    implementation: ClassVar[str] = "pipelines.data.features.text.tokens:Bytes"
    kind_of_values: ClassVar[str] = "tokens"
    encoder: Literal["bytes"] = "bytes"


class CharactersSettings(TokensSettings):
    """One token for each character of the training split, and one for all other characters."""

    implementation: ClassVar[str] = "pipelines.data.features.text.tokens:Characters"
    kind_of_values: ClassVar[str] = "tokens"
    encoder: Literal["characters"] = "characters"


class BpeSettings(TokensSettings):
    """Byte-pair encoding (Sennrich et al. 2016), trained on the training split by the tokenizers library of Hugging Face."""

    implementation: ClassVar[str] = "pipelines.data.features.text.tokens:Bpe"
    kind_of_values: ClassVar[str] = "tokens"
    encoder: Literal["bpe"] = "bpe"
    vocabulary: Annotated[int, Field(ge=258, le=65_536)] = 4_096
    """Maximum number of tokens: 256 bytes, the end of a document, and merges."""

    @property
    def encodes_with(self) -> tuple[str, ...]:
        return ("tokenizers",)


class WordsSettings(TokensSettings):
    """One token for each word of a vocabulary, learned from the training split, and one for all other words, `<unk>`.

    A word is what stands between white space, as it is. Each line break is a word too, as `<eos>` is in the usual figures of Penn Treebank
    and WikiText. A text without a word is quarantined.
    """

    implementation: ClassVar[str] = "pipelines.data.features.text.words:Words"
    kind_of_values: ClassVar[str] = "tokens"
    encoder: Literal["words"] = "words"
    vocabulary: Annotated[int, Field(ge=1, le=500_000)] = 10_000
    """Maximum number of words, besides the end of a document and `<unk>`; the most frequent ones are kept."""
    lowercase: bool = False
    """Converts words to lower case."""


class TokenizerSettings(EncoderSettings):
    """The tokens of a text by the tokenizer of a pretrained model, as int32 of a fixed length: the tokenizer's numbers plus 1, since 0 is
    padding. Tokens that it adds, such as [CLS] and [SEP], are in place in a longer text too, which loses its last words. NULL, and a text
    without a token, is quarantined.

    A dataset version holds the tokenizer itself, and so does the served model: neither needs the folder again.
    """

    implementation: ClassVar[str] = "pipelines.data.features.text.tokenizer:FolderTokenizer"
    kind_of_values: ClassVar[str] = "sequence"
    excluded_from_identity: ClassVar[frozenset[str]] = frozenset({"folder"})
    encoder: Literal["tokenizer"] = "tokenizer"
    folder: str = ""
    """Folder with tokenizer.json, as Hugging Face's libraries write it, on a disk of the machine that starts ETL. Where it is does not
    matter for the identity of a dataset, the `digest` does."""
    length: PositiveInt
    """Number of tokens, added ones included; longer texts are truncated, shorter ones padded."""
    digest: str = ""
    """SHA-256 of tokenizer.json, filled in where there is one; another file is refused."""

    @model_validator(mode="before")
    @classmethod
    def _digest_is_that_of_the_file(cls, values: Any) -> Any:
        """Note the digest, unless the settings are recorded ones, which have it. Whoever only uses a model needs no file."""
        if not isinstance(values, dict) or values.get("digest"):
            return values
        folder = values.get("folder")
        if not isinstance(folder, str) or not folder:
            raise ValueError("folder is not set; name the folder with the tokenizer.json of the model")
        folder = absolute_path(folder, home())
        content = read_from_folder(folder, TOKENIZER, "folder")
        return {**values, "folder": folder, **({} if content is None else {"digest": sha256(content).hexdigest()})}

    @property
    def encodes_with(self) -> tuple[str, ...]:
        return ("tokenizers",)

    @property
    def fault(self) -> str:
        return "" if self.digest else missing_file(self.folder, TOKENIZER, "folder")
