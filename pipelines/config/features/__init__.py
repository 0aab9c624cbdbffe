"""Settings of the encoders, which turn columns of the query into tensor columns. `pipelines.data.features` implements them.

`numbers`, `categories`, `arrays` and `tokens` define the settings of the built-in encoders, all derived from the class in `base`.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter

from pipelines.config.features.arrays import Image, LogMel, Scale
from pipelines.config.features.base import EncoderSettings
from pipelines.config.features.categories import Binary, Hash, Label, Sequence, Vocabulary
from pipelines.config.features.numbers import Fourier, Identity, Log1p, MinMax, NormalQuantile, Numeric, Quantile, Standardize
from pipelines.config.features.tokens import Bpe, Bytes, Characters, Tokens
from pipelines.config.plugins import is_path, own_settings

__all__ = [
    "ALONE",
    "BUILT_IN",
    "Binary",
    "Bpe",
    "Bytes",
    "Characters",
    "EncoderSettings",
    "Feature",
    "Fourier",
    "Hash",
    "Identity",
    "Image",
    "Label",
    "Log1p",
    "LogMel",
    "MinMax",
    "NormalQuantile",
    "Numeric",
    "Quantile",
    "Scale",
    "Sequence",
    "Standardize",
    "Tokens",
    "Vocabulary",
    "settings_of",
]

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
"""Settings of the built-in encoders; `plugin_fields` adds encoders that a config names by import path."""
ALONE = BeforeValidator(lambda value: {"encoder": value} if isinstance(value, str) else value)
"""The name of an encoder alone is short for its settings with all defaults."""
Feature = Annotated[BUILT_IN, Field(discriminator="encoder"), ALONE]
_FEATURE: TypeAdapter[EncoderSettings] = TypeAdapter(Feature)


def settings_of(values: Mapping[str, Any]) -> EncoderSettings:
    """Settings as read from a manifest, also of encoders named by import path. Raises ValueError if such a class cannot be imported."""
    name = values["encoder"]
    return own_settings(name, EncoderSettings, "encoder", ()).model_validate(values) if is_path(name) else _FEATURE.validate_python(values)
