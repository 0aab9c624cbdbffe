"""Encoders' settings: how columns of the query become tensor columns. `pipelines.features` does the work."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, TypeAdapter, model_validator

from pipelines.config.own import is_path, own_settings
from pipelines.config.section import Section, Seed, Text


class EncoderSettings(Section):
    """Base of every encoder's settings. An encoder of your own derives from it, in a module that imports no torch and no Arrow."""

    implementation: ClassVar[str]
    """`module:Class` of the `pipelines.features.base.Encoder` that these settings configure; imported by whoever encodes."""
    packs: ClassVar[bool] = False
    """Whether it makes rows of another number than it is given: windows of documents."""
    encoder: str
    """One of the built-in encoders, such as `standardize`, or `module:Class` of your own settings; alone, it may stand for its
    settings."""
    column: str = ""
    """Column of the query to encode; by default the one of the feature's own name."""

    @property
    def implemented_by(self) -> str:
        """The implementation, where settings decide which it is."""
        return self.implementation

    def inputs(self, feature: str) -> tuple[str, ...]:
        """The query's columns that this encoder reads, for the feature of that name."""
        return (self.column or feature,)

    def learns_from(self, feature: str) -> tuple[str, ...]:
        """The query's columns whose values in the training split decide its state; by default those it reads."""
        return self.inputs(feature)


class Numeric(EncoderSettings):
    impute: Literal["mean", "median", "none"] | float = "none"
    """What takes the place of NULL and NaN: a statistic of the training split, or a number. `none` quarantines."""


class Standardize(Numeric):
    """(x − mean) / standard deviation, float32."""

    implementation: ClassVar[str] = "pipelines.features.numbers:Standardize"
    encoder: Literal["standardize"] = "standardize"


class MinMax(Numeric):
    """(x − min) / (max − min), float32."""

    implementation: ClassVar[str] = "pipelines.features.numbers:MinMax"
    encoder: Literal["minmax"] = "minmax"


class Log1p(Numeric):
    """sign(x) · log(1 + |x|), float32."""

    implementation: ClassVar[str] = "pipelines.features.numbers:Log1p"
    encoder: Literal["log1p"] = "log1p"


class Quantile(Numeric):
    """The number of the quantile bin x falls in, an int32 to embed. NULL has a bin of its own unless imputed."""

    implementation: ClassVar[str] = "pipelines.features.quantiles:Quantile"
    encoder: Literal["quantile"] = "quantile"
    bins: Annotated[int, Field(ge=2, le=65_536)] = 32
    """At most so many; equal edges make one."""


class NormalQuantile(Numeric):
    """The normal deviate at x's quantile, float32: any distribution becomes a bell."""

    implementation: ClassVar[str] = "pipelines.features.quantiles:NormalQuantile"
    encoder: Literal["normal_quantile"] = "normal_quantile"
    quantiles: Annotated[int, Field(ge=2, le=10_000)] = 1_000
    """Points of the distribution kept; between them x is interpolated."""


class Fourier(Numeric):
    """sin and cos of standardised columns at random frequencies (Tancik et al. 2020), float32 vector. `impute` is for
    each column by itself."""

    implementation: ClassVar[str] = "pipelines.features.fourier:Fourier"
    encoder: Literal["fourier"] = "fourier"
    columns: tuple[str, ...] = ()
    """Columns encoded together, such as longitude and latitude."""
    frequencies: PositiveInt = 16
    """The vector has twice as many entries."""
    scale: PositiveFloat = 1.0
    """Standard deviation of the frequencies, in cycles per standard deviation of the column."""
    seed: Seed = 0
    """Of the frequencies."""

    def inputs(self, feature: str) -> tuple[str, ...]:
        return self.columns or super().inputs(feature)


class Identity(Numeric):
    """The number or array of numbers as it is. Floats become float32, whole numbers keep their type."""

    implementation: ClassVar[str] = "pipelines.features.numbers:Identity"
    encoder: Literal["identity"] = "identity"
    shape: tuple[PositiveInt, ...] = ()
    """Of an array column; every row must have it."""

    @property
    def implemented_by(self) -> str:
        return "pipelines.features.arrays:Array" if self.shape else self.implementation


class Scale(EncoderSettings):
    """(x − mean) / deviation of the numbers in an array, float32, by means and deviations that are given: where windows
    overlap, the training split would count most values many times."""

    implementation: ClassVar[str] = "pipelines.features.arrays:Scale"
    encoder: Literal["scale"] = "scale"
    shape: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    """Of the column, such as [336, 7] for 336 hours of 7 series; every row must have it."""
    mean: tuple[float, ...]
    """One for each entry of the last axis."""
    deviation: tuple[PositiveFloat, ...]
    """One for each entry of the last axis."""

    @model_validator(mode="after")
    def _every_entry_has_its_numbers(self) -> "Scale":
        if not len(self.mean) == len(self.deviation) == self.shape[-1]:
            raise ValueError(
                f"mean has {len(self.mean)} numbers and deviation {len(self.deviation)}; "
                f"the last axis of shape {list(self.shape)} needs {self.shape[-1]} of each"
            )
        return self


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


class Image(EncoderSettings):
    """Pixels, uint8, channels first: from raw bytes or arrays of that shape, or from PNG and JPEG bytes."""

    implementation: ClassVar[str] = "pipelines.features.arrays:Image"
    encoder: Literal["image"] = "image"
    shape: tuple[PositiveInt, PositiveInt, PositiveInt]
    """Channels, height, width. PNG and JPEG are converted to so many channels and resized."""


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


class LogMel(EncoderSettings):
    """The spectrogram of a WAV file's bytes, float32 of shape (mels, frames): the logarithm of the power on the mel scale."""

    implementation: ClassVar[str] = "pipelines.features.audio:LogMel"
    encoder: Literal["log_mel"] = "log_mel"
    sample_rate: PositiveInt
    """Samples a second that every file must have; one of another rate is quarantined."""
    seconds: PositiveFloat = 1.0
    """Of the file's beginning that are taken; silence follows a shorter one."""
    mels: PositiveInt = 40
    """Bands, equally far apart on the mel scale from 0 to half the sample rate."""
    window_seconds: PositiveFloat = 0.025
    """Length of a frame."""
    hop_seconds: PositiveFloat = 0.01
    """From the beginning of a frame to that of the next."""

    @model_validator(mode="after")
    def _holds_a_frame(self) -> "LogMel":
        if self.hop_seconds * self.sample_rate < 1 or self.window_seconds * self.sample_rate < 2 or self.seconds < self.window_seconds:
            raise ValueError(
                f"seconds {self.seconds:g}, window_seconds {self.window_seconds:g}, hop_seconds {self.hop_seconds:g}: "
                "a window must fit and have two samples at least, and a hop one"
            )
        return self


BUILT_IN = (
    Standardize
    | MinMax
    | Log1p
    | Quantile
    | NormalQuantile
    | Fourier
    | Identity
    | Scale
    | Vocabulary
    | Sequence
    | Hash
    | Binary
    | Label
    | Image
    | LogMel
    | Bytes
    | Characters
    | Bpe
)
"""The built-in ones; `own` adds those that a config names by import path."""
ALONE = BeforeValidator(lambda value: {"encoder": value} if isinstance(value, str) else value)
"""An encoder's name stands for its settings."""
Feature = Annotated[BUILT_IN, Field(discriminator="encoder"), ALONE]
_FEATURE: TypeAdapter[EncoderSettings] = TypeAdapter(Feature)


def settings_of(values: Mapping[str, Any]) -> EncoderSettings:
    """The settings that a manifest holds, of an encoder of one's own too. Raises ValueError if that cannot be imported."""
    name = values["encoder"]
    return own_settings(name, EncoderSettings, "encoder", ()).model_validate(values) if is_path(name) else _FEATURE.validate_python(values)
