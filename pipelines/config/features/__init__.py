"""Settings of the encoders, which turn columns of the query into tensor columns. `pipelines.data.features` implements them.

`base` has the class from which all derive, that of `auto`, which stands for any of them, and the names that stand for many columns.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, SerializeAsAny

from pipelines.config.features.base import AutoSettings, EncoderSettings
from pipelines.config.kinds import Kinds

ENCODERS = Kinds(EncoderSettings, "encoder", "lockstep.encoders", "pipelines.config.features", example="standardize")
FeatureOrAuto = Annotated[SerializeAsAny[EncoderSettings], BeforeValidator(ENCODERS.parse)]


def _check_is_chosen(settings: EncoderSettings) -> EncoderSettings:
    if isinstance(settings, AutoSettings):
        raise ValueError("auto is for features; name an encoder")
    return settings


Feature = Annotated[FeatureOrAuto, AfterValidator(_check_is_chosen)]


def encoder_settings(values: Mapping[str, Any]) -> EncoderSettings:
    """Settings as read from a manifest. Raises ValueError if there is no such encoder."""
    return ENCODERS.class_for(values["encoder"]).model_validate(values)
