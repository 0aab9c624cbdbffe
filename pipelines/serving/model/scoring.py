"""A model as MLflow sees it: the signature with an example, and its scoring server. That reads CSV with the types of the model, answers in
strict JSON, and answers a wrong request with one line instead of a stack."""

from math import prod
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.types as types
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature, infer_signature
from mlflow.protos.databricks_pb2 import BAD_REQUEST
from mlflow.types import ColSpec, DataType, Schema
from mlflow.types.schema import AnyType, Array

from pipelines.data.features import restore_encoder
from pipelines.data.features.arrays import is_bytes
from pipelines.data.features.raw import is_list, is_number, is_text
from pipelines.data.versions.manifest import Manifest, quote_identifier
from pipelines.errors import SourceError
from pipelines.runtime.compat.mlflow import is_serving, read_csv_as
from pipelines.serving.model.predictor import REFUSED, Predictor, feature_encoders, input_schema


def model_signature(predictor: Predictor) -> ModelSignature:
    """Names and types of the input columns and of the predictions."""
    # Of rows of series, the columns that windows make are missing, and of other rows those that they are made of.
    required = set(predictor.series_inputs.shared_names if predictor.series_inputs else predictor.inputs.names)
    inputs: list[Any] = [
        ColSpec(_mlflow_type(field.type), field.name, required=field.name in required) for field in predictor.columns_taken
    ]
    # An array with a value of its type in place of an empty one, of which MLflow infers nothing.
    example = predictor.outputs.map(lambda value: np.zeros(1, value.dtype) if isinstance(value, np.ndarray) and not value.size else value)
    outputs = infer_signature(example).inputs.inputs
    return ModelSignature(Schema(inputs), Schema([*outputs, ColSpec(DataType.string, REFUSED, required=False)]))


def input_example(manifest: Manifest) -> pd.DataFrame:
    """A raw row with values that JSON can express: for each column the example of its encoder, or else the most frequent value or the
    mean from the profile, or else zeros."""
    columns = {}
    query, features = manifest.served_query, feature_encoders(manifest).values()
    for field in input_schema(manifest):
        profile = manifest.profile.get(field.name, {})
        # An encoder that reads the raw column directly; None if only expressions of the query read it.
        raw = quote_identifier(field.name)
        names = {name for name, expression in query.columns.items() if expression == raw} if query else {field.name}
        reader = next((fitted for fitted in features if names & set(fitted.inputs)), None)
        value = restore_encoder(reader).example(field.type) if reader else None
        if value is None:
            value = next(iter(profile.get("most_frequent", ())), profile.get("mean"))
            value = [value] if value is not None and is_list(field.type) else value  # the profile of an array counts its elements
        value = _zeros(field.type, reader.column.shape if reader else ()) if value is None else value
        array = pa.array([value]).cast(field.type, safe=False)
        in_json = pa.float64() if types.is_decimal(field.type) else pa.timestamp("ns") if types.is_temporal(field.type) else field.type
        columns[field.name] = array.cast(in_json).to_pandas()
    return pd.DataFrame(columns)


def _mlflow_type(kind: pa.DataType) -> Any:
    """Numbers, booleans and texts are declared as `Any`: MLflow refuses integers for double, for long the floats that pandas uses for
    integers with NULL, and for string those that it uses for a column without a value; of booleans its server makes false from NULL and
    true from 2. `fitting_rows` refuses other values. Elements of arrays are declared likewise; MLflow accepts NULL only for such arrays."""
    if is_list(kind):
        return Array(_mlflow_type(kind.value_type) if is_list(kind.value_type) else AnyType())
    if is_number(kind) or is_text(kind):  # or a boolean
        return AnyType()
    if types.is_date(kind) or types.is_timestamp(kind):
        return DataType.datetime
    return DataType.binary


def _zeros(kind: pa.DataType, shape: tuple[int, ...]) -> Any:
    """A value of zeros for a raw column that is encoded to this shape."""
    if is_list(kind):
        nested = is_list(kind.value_type)
        return [_zeros(kind.value_type, shape[1:])] * (shape[0] if nested else prod(shape))
    return bytes(prod(shape)) if is_bytes(kind) else "" if types.is_string(kind) else 0


def set_csv_types(inputs: pa.Schema) -> None:
    """Make MLflow read CSV for a model with these inputs."""
    read_csv_as({field.name: _pandas_type(field.type) for field in inputs})


def answer(predictor: Predictor, rows: pd.DataFrame) -> pd.DataFrame:
    """Predictions, in a scoring server with None in place of NaN and ±∞, which JSON does not have. Raises SourceError if a column is
    missing or of another sort; in a scoring server an MlflowException, which MLflow answers with 400."""
    if not is_serving():
        return predictor.predict_frame(rows)
    try:
        predicted = predictor.predict_frame(rows)
    except SourceError as error:
        raise MlflowException(str(error), BAD_REQUEST) from None
    infinite = predicted.isin([np.inf, -np.inf])
    return predicted.astype(object).mask(predicted.isna() | infinite, None)


def _pandas_type(kind: pa.DataType) -> Any:
    """The pandas type for a column of CSV: integers stay exact beside a NULL."""
    if types.is_boolean(kind):
        return pd.BooleanDtype()
    if types.is_integer(kind):
        return pd.UInt64Dtype() if types.is_unsigned_integer(kind) else pd.Int64Dtype()
    if types.is_date(kind) or types.is_timestamp(kind):
        return pd.ArrowDtype(pa.timestamp("ns"))
    return np.dtype(float) if types.is_floating(kind) or types.is_decimal(kind) else np.dtype(object)
