"""Fits encoders from their settings and the statistics of the training split."""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from pipelines.config.dataset import Dataset
from pipelines.config.did_you_mean import name_list, suggestion
from pipelines.data.features.base import Input
from pipelines.data.features.encoding import implementation
from pipelines.data.features.statistics import COUNTS, WORDS, Statistics
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.errors import ConfigError


def needs(dataset: Dataset) -> dict[str, frozenset[str]]:
    """Statistics (names in `statistics`) that fitting needs, by column of the query."""
    needed: dict[str, frozenset[str]] = {}
    for name, settings in dataset.encoders.items():
        for column in settings.inputs(name):
            needed.setdefault(column, frozenset())
        for column in settings.learns_from(name):
            needed[column] = needed.get(column, frozenset()) | implementation(settings).needs(settings)
    return needed


def check_columns(dataset: Dataset, schema: pa.Schema) -> None:
    """Check that the query gives the columns that encoders read, with types that they accept; needs no rows.

    Raises ConfigError with one line per error.
    """
    if faults := list(_faults(dataset, schema)):
        raise ConfigError("\n".join(faults))


def fit_encoders(dataset: Dataset, statistics: Mapping[str, Statistics], schema: pa.Schema) -> dict[str, FittedEncoder]:
    """Fitted encoders by feature, the target last. `schema` is the schema of the query.

    Raises ConfigError with one line per error, as `check_columns` does, and if the training split has no usable values.
    """
    check_columns(dataset, schema)
    fitted, faults = {}, []
    for name, settings in dataset.encoders.items():
        inputs = [Input(column, schema.field(column).type, statistics[column]) for column in settings.learns_from(name)]
        encoder = implementation(settings)
        try:
            state = encoder.fit(settings, inputs)
        except ConfigError as error:
            faults.append(f"{_key(dataset, name)}: {error}")
            continue
        column = encoder(settings, state).column(name, dataset.column_role(name))
        fitted[name] = FittedEncoder(feature=settings.model_dump(mode="json"), inputs=settings.inputs(name), state=state, column=column)
    if faults:
        raise ConfigError("\n".join(faults))
    return fitted


def _faults(dataset: Dataset, schema: pa.Schema) -> Iterator[str]:
    needed, columns = needs(dataset), set(schema.names)
    for name, settings in dataset.encoders.items():
        for column in dict.fromkeys([*settings.inputs(name), *settings.learns_from(name)]):
            if column not in columns:
                column_list = f"it gives {name_list(schema.names, column)}"
                hint = suggestion(column, schema.names)
                yield f"{_key(dataset, name)}: the query gives no column {column}; {f'{hint} ({column_list})' if hint else column_list}"
                continue
            kind = schema.field(column).type
            if reason := implementation(settings).refusal(settings, kind):
                yield f"{_key(dataset, name)}: {settings.encoder} cannot encode column {column}, which is {kind}: {reason}"
            elif {COUNTS, WORDS} <= needed[column] and WORDS in implementation(settings).needs(settings):
                yield (
                    f"{_key(dataset, name)}: {settings.encoder} splits column {column} into words, and another encoder takes whole values; "
                    f"give each its own column, such as {column} AS {column}_whole in the query"
                )


def _key(dataset: Dataset, name: str) -> str:
    """Dotted key of the encoder in the YAML file."""
    role = dataset.column_role(name)
    return f"dataset.{'features' if role == 'feature' else role}.{name}"
