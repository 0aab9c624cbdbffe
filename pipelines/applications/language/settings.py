"""Settings of language models: the encoders that pack texts into windows, and the task."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from pipelines.config.effects import OnlyWith, is_above_0
from pipelines.config.features.base import EncoderSettings
from pipelines.config.tasks.base import Probability, SequenceTaskSettings, check_heads


class TokensSettings(EncoderSettings):
    """Packed tokens: the documents of a part file are joined, each followed by token 0, and cut into windows of equal length."""

    packs: ClassVar[bool] = True
    length: PositiveInt
    """Number of tokens that a window predicts. A window has one token more: it begins with the last token of the previous window."""


class BytesSettings(TokensSettings):
    """One token for each byte of UTF-8."""

    implementation: ClassVar[str] = "pipelines.applications.language.encoders:Bytes"
    kind_of_values: ClassVar[str] = "tokens"
    encoder: Literal["bytes"] = "bytes"


class CharactersSettings(TokensSettings):
    """One token for each character of the training split, and one for all other characters."""

    implementation: ClassVar[str] = "pipelines.applications.language.encoders:Characters"
    kind_of_values: ClassVar[str] = "tokens"
    encoder: Literal["characters"] = "characters"


class BpeSettings(TokensSettings):
    """Byte-pair encoding (Sennrich et al. 2016), trained on the training split by the tokenizers library of Hugging Face."""

    implementation: ClassVar[str] = "pipelines.applications.language.byte_pairs:Bpe"
    encodes_with: ClassVar[tuple[str, ...]] = ("tokenizers",)
    kind_of_values: ClassVar[str] = "tokens"
    encoder: Literal["bpe"] = "bpe"
    vocabulary: Annotated[int, Field(ge=258, le=65_536)] = 4_096
    """Maximum number of tokens: 256 bytes, the end of a document, and merges."""


class WordsSettings(TokensSettings):
    """One token for each word of a vocabulary, learned from the training split, and one for all other words, `<unk>`.

    A word is what stands between white space, as it is. Each line break is a word too, as `<eos>` is in the usual figures of Penn Treebank
    and WikiText. A text without a word is quarantined.
    """

    implementation: ClassVar[str] = "pipelines.applications.language.encoders:Words"
    kind_of_values: ClassVar[str] = "tokens"
    encoder: Literal["words"] = "words"
    vocabulary: Annotated[int, Field(ge=1, le=500_000)] = 10_000
    """Maximum number of words, besides the end of a document and `<unk>`; the most frequent ones are kept."""
    lowercase: bool = False
    """Converts words to lower case."""


def _reaches_cutoffs(features: Mapping[str, Any], cutoffs: tuple[int, ...]) -> bool:
    """Whether a vocabulary of words, with the end of a document and the unknown word, may have a word in the last cluster."""
    return all(settings.vocabulary + 2 > cutoffs[-1] for settings in features.values() if isinstance(settings, WordsSettings))


class LanguageSettings(SequenceTaskSettings):
    """A language model for one packed column. It predicts each token from the previous ones in the window."""

    implementation: ClassVar[str] = "pipelines.applications.language.task:Language"
    kind: Literal["language"] = "language"
    network: Literal["gpt", "lstm"] = "gpt"
    """`gpt` is a transformer; `lstm` has LSTM layers, whose state is zero at the start of each window (Zaremba et al. 2014)."""
    layers: PositiveInt = 4
    """Number of transformer blocks, each with self-attention and a perceptron, or of LSTM layers."""
    heads: Annotated[PositiveInt, OnlyWith(".network", ("gpt",))] = 4
    """For `gpt`: attention heads in each block."""
    width: PositiveInt = 128
    """Width of the residual stream, or of each LSTM layer; for `gpt`, the width of a head, width / heads, must be even."""
    dropout: Probability = 0.0
    """Dropout probability between layers, in training."""
    tied: bool = False
    """Whether the weight of the head is the embedding (Press and Wolf 2017)."""
    cutoffs: Annotated[
        tuple[PositiveInt, ...],
        OnlyWith("dataset.features", fits=_reaches_cutoffs, remedy="raise the vocabulary of words above the last of them"),
    ] = ()
    """For tokens of `words`, an adaptive softmax (Grave et al. 2017): where, in the order of frequency, clusters of rarer words begin, such
    as [2000, 6000]. Each has vectors a quarter as wide as those before it. If `tied`, the vectors of tokens are those, too (Baevski and
    Auli 2019)."""
    chunk_tokens: Annotated[NonNegativeInt, OnlyWith(".cutoffs", ((),), remedy="remove task.cutoffs")] = 0
    """Number of tokens whose logits exist at a time in training. The backward pass computes them again, which saves memory where the
    vocabulary is large: 4 GB for 16,384 tokens and 128,000 words in bf16. 0 keeps the logits of all tokens of a pass."""
    sample_tokens: NonNegativeInt = 200
    """Number of tokens of the text that the model generates after each epoch and MLflow stores with the run; 0 for no text."""
    temperature: Annotated[PositiveFloat, OnlyWith(".sample_tokens", fits=is_above_0, remedy="set task.sample_tokens, as to 200")] = 0.8
    """Sampling temperature of the generated text; below 1 the text is more probable and less varied."""

    @model_validator(mode="after")
    def _widths_can_be_divided(self) -> "LanguageSettings":
        if self.network == "gpt":
            check_heads(self.width, self.heads, pieces=2)
        if list(self.cutoffs) != sorted(set(self.cutoffs)):
            raise ValueError(f"cutoffs is {list(self.cutoffs)}; write each once, in ascending order, such as {sorted(set(self.cutoffs))}")
        if (narrowest := 4 ** len(self.cutoffs)) > self.width:
            raise ValueError(
                f"cutoffs makes {len(self.cutoffs)} clusters, and width is {self.width}; set width to {narrowest} or more, or name fewer"
            )
        return self
