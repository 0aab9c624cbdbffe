"""Settings of the encoders, which turn columns of the query into tensor columns. `pipelines.data.features` implements them.

`numbers`, `categories`, `terms`, `arrays`, `series`, `dense`, `boxes`, `tokens` and `targets` define the settings of the built-in
encoders, all derived from the class in `base`. `auto` stands for any of them, and has the names that stand for many columns.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter

from pipelines.config.features.arrays import ImageSettings, LogMelSettings, ScaleSettings
from pipelines.config.features.auto import COLUMN_KINDS, AutoSettings, is_pattern, matches_name, split_pattern
from pipelines.config.features.base import EncoderSettings
from pipelines.config.features.boxes import BoxesSettings
from pipelines.config.features.categories import BinarySettings, HashSettings, LabelSettings, SequenceSettings, VocabularySettings
from pipelines.config.features.dense import MaskSettings, VolumeSettings
from pipelines.config.features.numbers import (
    FourierSettings,
    IdentitySettings,
    Log1pSettings,
    MinMaxSettings,
    NormalQuantileSettings,
    NumericSettings,
    QuantileSettings,
    RobustSettings,
    StandardizeSettings,
)
from pipelines.config.features.series import SeriesSettings
from pipelines.config.features.targets import CountSettings, LabelsSettings, VectorSettings, WeightSettings
from pipelines.config.features.terms import TermsSettings
from pipelines.config.features.tokens import (
    BpeSettings,
    BytesSettings,
    CharactersSettings,
    TokenizerSettings,
    TokensSettings,
    WordsSettings,
)
from pipelines.config.plugins import is_class_path, plugin_settings

__all__ = [
    "ALONE", "BUILT_IN", "COLUMN_KINDS", "AutoSettings", "BinarySettings", "BoxesSettings", "BpeSettings", "BytesSettings",
    "CharactersSettings", "CountSettings", "EncoderSettings", "Feature", "FeatureOrAuto", "FourierSettings", "HashSettings",
    "IdentitySettings", "ImageSettings", "LabelSettings", "LabelsSettings", "Log1pSettings", "LogMelSettings", "MaskSettings",
    "MinMaxSettings", "NormalQuantileSettings", "NumericSettings", "QuantileSettings", "RobustSettings", "ScaleSettings",
    "SequenceSettings", "SeriesSettings", "StandardizeSettings", "TermsSettings", "TokenizerSettings", "TokensSettings", "VectorSettings",
    "VocabularySettings", "VolumeSettings", "WeightSettings", "WordsSettings", "encoder_settings", "is_pattern", "matches_name",
    "split_pattern",
]  # fmt: skip

BUILT_IN = (
    StandardizeSettings | MinMaxSettings | Log1pSettings | QuantileSettings | NormalQuantileSettings | RobustSettings |
    FourierSettings | IdentitySettings | ScaleSettings | VocabularySettings | SequenceSettings | TermsSettings | HashSettings |
    BinarySettings | LabelSettings | ImageSettings | SeriesSettings | LogMelSettings | BytesSettings | CharactersSettings | BpeSettings |
    WeightSettings | CountSettings | VectorSettings | LabelsSettings | VolumeSettings | MaskSettings | BoxesSettings | TokenizerSettings |
    WordsSettings
)  # fmt: skip
"""Settings of the built-in encoders; `plugin_fields` adds encoders that a config names by import path."""
ALONE = BeforeValidator(lambda value: {"encoder": value} if isinstance(value, str) else value)
"""The name of an encoder alone is short for its settings with all defaults."""
Feature = Annotated[BUILT_IN, Field(discriminator="encoder"), ALONE]
FeatureOrAuto = Annotated[BUILT_IN | AutoSettings, Field(discriminator="encoder"), ALONE]
_FEATURE: TypeAdapter[EncoderSettings] = TypeAdapter(Feature)


def encoder_settings(values: Mapping[str, Any]) -> EncoderSettings:
    """Settings as read from a manifest, also of encoders named by import path. Raises ValueError if such a class cannot be imported."""
    name = values["encoder"]
    return (
        plugin_settings(name, EncoderSettings, "encoder", ()).model_validate(values)
        if is_class_path(name)
        else _FEATURE.validate_python(values)
    )
