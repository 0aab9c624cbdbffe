"""Asks encoders about themselves and about their raw columns."""

from collections.abc import Iterable, Mapping

from pipelines.config.features import encoder_settings
from pipelines.data.features import restore_encoder
from pipelines.data.features.encoding import implementation
from pipelines.data.versions.manifest import FittedEncoder


def encoders_by_column(encoders: Mapping[str, FittedEncoder]) -> dict[str, dict[str, FittedEncoder]]:
    """The encoders of each raw column, by the name of the tensor column that they make."""
    by_column: dict[str, dict[str, FittedEncoder]] = {}
    for name, fitted in encoders.items():
        for column in fitted.inputs:
            by_column.setdefault(column, {})[name] = fitted
    return by_column


def describe_encoder(name: str, fitted: FittedEncoder) -> str:
    """Say how the tensor column `name` comes from its raw columns."""
    column = fitted.column
    shape = f" of shape {list(column.shape)}" if column.shape else ""
    source = "" if fitted.inputs == (name,) else f" from {', '.join(fitted.inputs)}"
    return f"{fitted.feature['encoder']}{source}: {restore_encoder(fitted).method}; {column.dtype}{shape}"


def name_pieces(encoders: Iterable[FittedEncoder]) -> str:
    """Name what the counts of a column with these encoders are of: values, unless one splits them into words or characters."""
    pieces = (implementation(encoder_settings(fitted.feature)).pieces for fitted in encoders)
    return next((name for name in pieces if name != "values"), "values")
