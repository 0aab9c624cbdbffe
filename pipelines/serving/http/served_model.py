"""A model that is served: it predicts the rows of several requests together, and refuses single rows with a reason."""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.types as types

from pipelines.config.messages.words import name_list
from pipelines.config.tasks.functions import holds_code
from pipelines.data.features.arrays import is_bytes
from pipelines.data.features.raw import is_number
from pipelines.errors import ConfigError, SourceError
from pipelines.serving.http.request import JsonRow
from pipelines.serving.model import REFUSED, Predictor
from pipelines.serving.model.column_casts import element_type, to_arrow
from pipelines.serving.model.logged_model import read_model
from pipelines.serving.model.scoring import input_example
from pipelines.tracking.models import registered_model_files


@dataclass(frozen=True)
class ServedModel:
    """A model with its version."""

    predictor: Predictor
    version: str
    """Number of the registered version, or ID of the logged model."""
    digest: str
    """SHA-256 of its weights."""
    example: JsonRow
    """A row that it takes."""

    def answers(self, requests: Sequence[list[JsonRow]]) -> list[list[JsonRow]]:
        """Predictions of the rows of each request, in their order. A row that cannot be taken has NULL as prediction, and the reason in
        `refused`; it does not affect other rows."""
        series = self.predictor.series_inputs
        # Windows are made of the rows of a request, and so not of those of others, if no row has its windows already.
        are_series = [bool(series and request and all(series.are_needed(list(row)) for row in request)) for request in requests]
        rows = [row for request, is_series in zip(requests, are_series, strict=True) if not is_series for row in request]
        predictions = iter(self._predict_or_refuse(rows) if rows else [])
        return [
            self._predict_series(request) if is_series else list(islice(predictions, len(request)))
            for request, is_series in zip(requests, are_series, strict=True)
        ]

    def _predict_series(self, rows: list[JsonRow]) -> list[JsonRow]:
        """The rows of a request together: a fault of one is in the windows of others, so all of them are refused with it."""
        assert self.predictor.series_inputs is not None, "windows are made of the rows"
        schema = self.predictor.series_inputs.schema
        try:
            return _json_rows(self.predictor.predict_series(to_arrow(_columns(rows, schema), schema)))
        except SourceError as error:
            return [{**dict.fromkeys(self.predictor.outputs.columns), REFUSED: str(error)} for _ in rows]

    def _predict_or_refuse(self, rows: list[JsonRow]) -> list[JsonRow]:
        """Predict rows that need no others. If one lacks a column or has a value of another type, the rows are converted one by one, and
        predicted together, since prediction takes longer than conversion."""
        inputs = self.predictor.inputs
        with suppress(SourceError):
            return _json_rows(self.predictor.predict(to_arrow(_columns(rows, inputs), inputs)))
        reasons: dict[int, str] = {}
        tables: list[pa.Table] = []
        for number, row in enumerate(rows):
            try:
                tables.append(to_arrow(_columns([row], inputs), inputs))
            except SourceError as error:
                reasons[number] = str(error)
        predicted = iter(_json_rows(self.predictor.predict(pa.concat_tables(tables))) if tables else [])
        nothing: JsonRow = dict.fromkeys(self.predictor.outputs.columns)
        return [{**nothing, REFUSED: reasons[number]} if number in reasons else next(predicted) for number in range(len(rows))]


def _columns(rows: list[JsonRow], inputs: pa.Schema) -> dict[str, list[Any]]:
    """The values of each column. Raises SourceError if a row lacks a column."""
    columns = {}
    for field in inputs:
        try:
            values = [row[field.name] for row in rows]
        except KeyError:
            raise SourceError(f"the row has no column {field.name}; the model takes {name_list(inputs.names)}") from None
        columns[field.name] = _from_json(values, field)
    return columns


def _from_json(values: list[Any], field: pa.Field) -> list[Any]:
    """Bytes are base64 in JSON, and times are text. Among numbers Arrow would take true for 1, depending on the other rows of a batch."""
    try:
        element = element_type(field.type)
        if is_number(element) and not types.is_boolean(element) and (wrong := next(_unrepresentable(values), None)) is not None:
            raise ValueError(f"it is {json.dumps(wrong)}")
        if is_bytes(field.type):
            return [None if value is None else b64decode(value, validate=True) for value in values]
        if types.is_temporal(field.type):
            return [None if value is None else pd.Timestamp(value) for value in values]
    except (ValueError, TypeError) as error:
        raise SourceError(f"the value of column {field.name} is no {field.type}: {error}") from error
    return values


def _unrepresentable(values: list[Any]) -> Iterator[bool | int]:
    """Booleans, and integers that no type of Arrow has, in a list or in lists within it."""
    for value in values:
        if isinstance(value, list):
            yield from _unrepresentable(value)
        elif isinstance(value, bool) or (isinstance(value, int) and not -(2**63) <= value < 2**64):
            yield value


def example_row(rows: pd.DataFrame) -> JsonRow:
    """The first row of a data frame as a request has it."""
    return {str(name): _json_value(rows[name].iloc[0]) for name in rows}


def _json_rows(predicted: pd.DataFrame) -> list[JsonRow]:
    columns = {str(name): [_json_value(value) for value in predicted[name].tolist()] for name in predicted}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _json_value(value: Any) -> Any:
    """A value as JSON has it: bytes in base64, times as text, and NULL for what is not finite, also in arrays."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):  # of whole numbers, a mask has very many
        return [item if isinstance(item, int) else _json_value(item) for item in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if value is pd.NaT:
        return None
    if isinstance(value, datetime) and value == datetime(value.year, value.month, value.day, tzinfo=value.tzinfo):
        value = value.date()
    return value.isoformat() if isinstance(value, date) else value


def load_served_model(tracking_uri: str, model: str, version: str) -> ServedModel:
    """Load a version, and predict one row of zeros with it. Raises TrackingError if it is not there, CorruptError if it was altered, and
    ConfigError if it has code of its own in its settings, which would run here."""
    with registered_model_files(tracking_uri, model, version) as folder:
        parts, digest = read_model(folder)
    if holds_code(parts.settings):
        raise ConfigError(
            f"{model} has its network's function in task.source, which this server does not run; "
            "train with the function in a module, or serve it by mlflow models serve"
        )
    return ServedModel(Predictor(*parts), version, digest, example_row(input_example(parts.manifest)))
