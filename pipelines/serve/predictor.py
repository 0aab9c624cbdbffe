"""Predicts from raw rows: the encoders of a dataset version, followed by a trained model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types
import torch

from pipelines.config import TaskSettings
from pipelines.dataset.manifest import FittedEncoder, Manifest, columns_of
from pipelines.dataset.schema import schema_from_text, to_numpy
from pipelines.errors import SourceError
from pipelines.features import Encoders
from pipelines.features.base import Packer
from pipelines.features.raw import is_list, is_number
from pipelines.learning import task_of
from pipelines.rowwise.engine import Evaluator

REFUSED = "refused"
"""Column of the predictions with the reason why a row was refused, or NULL."""
_ROWS_AT_ONCE = 8_192
_WINDOWS_AT_ONCE = 64
"""Windows of documents that are computed at a time; their activations take some 100 MB."""


class Predictor:
    """Predicts from raw rows. `inputs` is the schema of the rows; `outputs` is an example of predictions, for a row of zeros."""

    def __init__(self, settings: TaskSettings, manifest: Manifest, weights: Mapping[str, torch.Tensor]) -> None:
        features = features_of(manifest)
        self._encoders = Encoders(features)
        self._columns = columns_of(features)
        self._task = task_of(settings, manifest)
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = self._task.model()
        self._model.load_state_dict(dict(weights))
        self._model.to(self._device).eval()
        self._query = manifest.served_query
        self._evaluator = Evaluator()
        self.inputs = inputs_of(manifest)
        self.outputs = self._predicted({column.name: np.zeros((1, *column.shape), column.dtype) for column in self._columns})

    def predict(self, raw: pa.Table) -> pd.DataFrame:
        """The columns of `Task.predict` and `refused`, one row per raw row.

        A row that an encoder refuses has NULL as prediction and the reason in `refused`. Raises SourceError if a column is missing.
        """
        starts = range(0, max(len(raw), 1), _ROWS_AT_ONCE)
        return pd.concat([self._at_once(raw.slice(start, _ROWS_AT_ONCE)) for start in starts], ignore_index=True)

    def predict_frame(self, rows: pd.DataFrame) -> pd.DataFrame:
        """`predict` for the rows of a data frame, with the same index."""
        return self.predict(to_arrow(rows, self.inputs)).set_axis(rows.index)

    def _at_once(self, raw: pa.Table) -> pd.DataFrame:
        encoded, reasons = self._encoded(raw)
        predicted = self.outputs.iloc[:0]
        if len(encoded) and self._encoders.packer:
            predicted = self._of_windows(self._encoders.packer, encoded)
        elif len(encoded):
            predicted = self._predicted({column.name: to_numpy(column, encoded[column.name].combine_chunks()) for column in self._columns})
        if reasons.null_count < len(raw):
            accepted = np.flatnonzero(reasons.is_null().to_numpy(zero_copy_only=False))
            predicted = predicted.set_axis(accepted).reindex(range(len(raw)))
        return predicted.assign(**{REFUSED: pd.Series(reasons.to_pylist(), dtype=object)})

    def _encoded(self, raw: pa.Table) -> tuple[pa.Table, pa.Array]:
        """As `Encoders.encode`, after the query if the model takes rows before the query."""
        if self._query is None:
            return self._encoders.encode(raw)
        queried, dropped = self._evaluator.queried(raw, self._query)
        encoded, reasons = self._encoders.encode(queried)
        return encoded, pc.replace_with_mask(dropped, pc.is_null(dropped), reasons)

    def _of_windows(self, packer: Packer, encoded: pa.Table) -> pd.DataFrame:
        """Predictions for documents. Each is cut into its own windows, whose outputs are summed."""
        (name,) = encoded.column_names
        outputs = []
        for document in encoded[name]:
            windows = packer.windows([document.values.to_numpy()])
            starts = range(0, len(windows), _WINDOWS_AT_ONCE)
            pieces = [self._output({name: windows[start : start + _WINDOWS_AT_ONCE]}) for start in starts]
            outputs.append(torch.cat(pieces).sum(dim=0, keepdim=True))
        return pd.DataFrame(self._task.predict(torch.cat(outputs)))

    def _predicted(self, arrays: Mapping[str, np.ndarray]) -> pd.DataFrame:
        return pd.DataFrame(self._task.predict(self._output(arrays)))

    def _output(self, arrays: Mapping[str, np.ndarray]) -> torch.Tensor:
        batch = {name: torch.from_numpy(np.array(values)).to(self._device) for name, values in arrays.items()}
        with torch.inference_mode():
            return self._model(batch)


def features_of(manifest: Manifest) -> dict[str, FittedEncoder]:
    """The encoders that prediction needs: all except that of the target."""
    return {name: fitted for name, fitted in manifest.encoders.items() if fitted.column.role == "feature"}


def inputs_of(manifest: Manifest) -> pa.Schema:
    """The columns that the model takes: those that the served query reads, or else the columns of the query that features are
    encoded from."""
    if manifest.served_query:
        return manifest.served_query.taken
    read = {column for fitted in features_of(manifest).values() for column in fitted.inputs}
    return pa.schema([field for field in schema_from_text(manifest.raw_schema) if field.name in read])


def to_arrow(rows: pd.DataFrame | Mapping[str, list[Any]], schema: pa.Schema) -> pa.Table:
    """Convert a data frame, or lists of values by column, to a table with this schema. NaN and None become NULL; other columns are ignored.

    Raises SourceError if a column is missing or cannot be cast.
    """
    columns = []
    for field in schema:
        if field.name not in rows:
            raise SourceError(f"the rows have no column {field.name}; the model takes {', '.join(schema.names)}")
        try:
            columns.append(_column(rows[field.name], field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError) as error:
            raise SourceError(f"the values of column {field.name} cannot be cast to {field.type}: {error}") from error
    return pa.Table.from_arrays(columns, schema=schema)


def _column(values: pd.Series | list[Any], kind: pa.DataType) -> pa.Array:
    """Cast values to a type of the same sort: integers may be cast to other numbers, but text and booleans may not."""
    if is_list(kind):  # Arrow accepts one-dimensional arrays or nested lists
        values = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    found = pa.array(values, from_pandas=True)
    found = found.dictionary_decode() if types.is_dictionary(found.type) else found
    if _sort(found.type) not in (_sort(kind), "null"):
        raise pa.ArrowTypeError(f"they are {found.type}")
    if types.is_integer(found.type) and types.is_decimal(kind):
        found = found.cast(pa.decimal128(38, kind.scale))  # Arrow requires a precision for all values of the type
    # Times arrive in nanoseconds, decimals as float64, and numbers for floats are rounded; all other casts must be exact.
    rounds = _sort(kind) == "times" or types.is_decimal(_element(kind)) or types.is_floating(_element(kind))
    return found.cast(kind, safe=not rounds)


def _element(kind: pa.DataType) -> pa.DataType:
    return _element(kind.value_type) if is_list(kind) else kind


def _sort(kind: pa.DataType) -> str:
    if is_list(kind):
        return _sort(kind.value_type)
    if types.is_boolean(kind):
        return "booleans"
    return "numbers" if is_number(kind) else "times" if types.is_temporal(kind) else "null" if types.is_null(kind) else "text or bytes"
