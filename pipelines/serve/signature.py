"""What MLflow is told of a model: the columns it takes and gives, and one row as an example."""

from math import prod
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.types as types
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import ColSpec, DataType, Schema
from mlflow.types.schema import AnyType, Array

from pipelines.dataset.manifest import Manifest
from pipelines.features import restored
from pipelines.features.arrays import is_bytes
from pipelines.features.raw import is_list
from pipelines.serve.predictor import REFUSED, Predictor, features_of, inputs_of


def signature_of(predictor: Predictor, manifest: Manifest) -> ModelSignature:
    """Names and types of the raw columns, those that the query derived among them, and of the predictions."""
    inputs: list[Any] = [ColSpec(_mlflow_type(field.type, _takes_null(manifest, field)), field.name) for field in predictor.inputs]
    outputs = infer_signature(predictor.outputs).inputs.inputs
    return ModelSignature(Schema(inputs), Schema([*outputs, ColSpec(DataType.string, REFUSED, required=False)]))


def example_of(manifest: Manifest) -> pd.DataFrame:
    """A raw row, fit for JSON: of each column the encoder's example, where it has one, else the most frequent value or the mean,
    where the profile has it, else zeros."""
    columns = {}
    for field in inputs_of(manifest):
        profile = manifest.profile.get(field.name, {})
        reader = next(fitted for fitted in features_of(manifest).values() if field.name in fitted.inputs)
        value = restored(reader).example(field.type)
        if value is None:
            value = next(iter(profile.get("most_frequent", ())), profile.get("mean"))
            value = [value] if value is not None and is_list(field.type) else value  # what is counted of an array are its elements
        found = pa.array([_zeros(field.type, reader.column.shape) if value is None else value]).cast(field.type, safe=False)
        in_json = pa.float64() if types.is_decimal(field.type) else pa.timestamp("ns") if types.is_temporal(field.type) else field.type
        columns[field.name] = found.cast(in_json).to_pandas()
    return pd.DataFrame(columns)


def _takes_null(manifest: Manifest, field: pa.Field) -> bool:
    """Whether a row with NULL in this column has a prediction."""
    readers = [fitted for fitted in features_of(manifest).values() if field.name in fitted.inputs]
    return not any(restored(fitted).encode(*[pa.nulls(1, field.type)] * len(fitted.inputs)).null_count for fitted in readers)


def _mlflow_type(kind: pa.DataType, takes_null: bool) -> Any:
    """The widest of MLflow's types, since it refuses int64 for int32. pandas has whole numbers with a NULL among them as
    floats, which MLflow refuses for whole numbers: a column that may have NULLs is declared as of any type."""
    if is_list(kind):
        return Array(_mlflow_type(kind.value_type, False))
    if types.is_integer(kind):
        return AnyType() if takes_null else DataType.long
    if types.is_boolean(kind):
        return DataType.boolean
    if types.is_floating(kind) or types.is_decimal(kind):
        return DataType.double
    if types.is_date(kind) or types.is_timestamp(kind):
        return DataType.datetime
    return DataType.binary if is_bytes(kind) else DataType.string


def _zeros(kind: pa.DataType, shape: tuple[int, ...]) -> Any:
    """A value of a raw column that is encoded to that shape."""
    if is_list(kind):
        nested = is_list(kind.value_type)
        return [_zeros(kind.value_type, shape[1:])] * (shape[0] if nested else prod(shape))
    return bytes(prod(shape)) if is_bytes(kind) else "" if types.is_string(kind) else 0
