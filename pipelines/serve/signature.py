"""What MLflow is told of a model: the columns it takes and gives, and one row as an example."""

from math import prod
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.types as types
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import ColSpec, DataType, Schema
from mlflow.types.schema import AnyType, Array

from pipelines.dataset.manifest import FittedEncoder, Manifest
from pipelines.features import restored
from pipelines.features.arrays import is_bytes
from pipelines.features.raw import is_list, is_number
from pipelines.rowwise.engine import quoted
from pipelines.serve.predictor import REFUSED, Predictor, features_of, inputs_of


def signature_of(predictor: Predictor) -> ModelSignature:
    """Names and types of the raw columns, those that the query derived among them, and of the predictions."""
    inputs: list[Any] = [ColSpec(_mlflow_type(field.type), field.name) for field in predictor.inputs]
    outputs = infer_signature(predictor.outputs).inputs.inputs
    return ModelSignature(Schema(inputs), Schema([*outputs, ColSpec(DataType.string, REFUSED, required=False)]))


def example_of(manifest: Manifest) -> pd.DataFrame:
    """A raw row, fit for JSON: of each column the encoder's example, where it has one, else the most frequent value or the mean,
    where the profile has it, else zeros."""
    columns = {}
    for field in inputs_of(manifest):
        profile = manifest.profile.get(field.name, {})
        reader = _reader(manifest, field.name)
        value = restored(reader).example(field.type) if reader else None
        if value is None:
            value = next(iter(profile.get("most_frequent", ())), profile.get("mean"))
            value = [value] if value is not None and is_list(field.type) else value  # what is counted of an array are its elements
        found = pa.array([_zeros(field.type, reader.column.shape if reader else ()) if value is None else value]).cast(
            field.type, safe=False
        )
        in_json = pa.float64() if types.is_decimal(field.type) else pa.timestamp("ns") if types.is_temporal(field.type) else field.type
        columns[field.name] = found.cast(in_json).to_pandas()
    return pd.DataFrame(columns)


def _reader(manifest: Manifest, raw: str) -> FittedEncoder | None:
    """An encoder that reads the raw column; None if all that is read of it is what the query makes."""
    query = manifest.served_query
    names = {raw} if query is None else {name for name, expression in query.columns.items() if expression == quoted(raw)}
    return next((fitted for fitted in features_of(manifest).values() if names & set(fitted.inputs)), None)


def _mlflow_type(kind: pa.DataType) -> Any:
    """A number is declared as of any type: MLflow refuses whole numbers for double, and the floats that pandas makes of whole
    numbers with a NULL among them for long. `to_arrow` says what is no number. An array's elements likewise, and only then an
    array may be NULL."""
    if is_list(kind):
        return Array(_mlflow_type(kind.value_type) if is_list(kind.value_type) else AnyType())
    if types.is_boolean(kind):
        return DataType.boolean
    if is_number(kind):
        return AnyType()
    if types.is_date(kind) or types.is_timestamp(kind):
        return DataType.datetime
    return DataType.binary if is_bytes(kind) else DataType.string


def _zeros(kind: pa.DataType, shape: tuple[int, ...]) -> Any:
    """A value of a raw column that is encoded to that shape."""
    if is_list(kind):
        nested = is_list(kind.value_type)
        return [_zeros(kind.value_type, shape[1:])] * (shape[0] if nested else prod(shape))
    return bytes(prod(shape)) if is_bytes(kind) else "" if types.is_string(kind) else 0
