"""A model in MLflow's scoring server: it reads CSV with the types of the model, answers in strict JSON, and answers a wrong
request with one line instead of a stack."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.types as types
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST

from pipelines.errors import SourceError
from pipelines.runtime.compat.mlflow import is_serving, read_csv_as
from pipelines.serving.model.predictor import Predictor


def set_csv_types(inputs: pa.Schema) -> None:
    """Make MLflow read CSV for a model with these inputs."""
    read_csv_as({field.name: _pandas_type(field.type) for field in inputs})


def answer(predictor: Predictor, rows: pd.DataFrame) -> pd.DataFrame:
    """Predictions, in a scoring server with None in place of NaN and ±∞, which JSON does not have.

    Raises SourceError if a column is missing or of another sort; in a scoring server an MlflowException, which MLflow answers with 400.
    """
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
