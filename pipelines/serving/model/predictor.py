"""Predicts from raw rows: the encoders of a dataset version, followed by a trained model."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import torch

from pipelines.config import TaskSettings
from pipelines.data.features import Encoders
from pipelines.data.features.base import Packer
from pipelines.data.rowwise.engine import Evaluator
from pipelines.data.versions.manifest import FittedEncoder, Manifest, tensor_columns
from pipelines.data.versions.schema import schema_from_text, to_numpy
from pipelines.errors import SourceError
from pipelines.serving.model.column_casts import fitting_rows
from pipelines.serving.model.series_windows import add_windows_to_rows, series_inputs
from pipelines.tasks.bind import build_task

REFUSED = "refused"
"""Column of the predictions with the reason why a row was refused, or NULL."""
_BATCH_ROWS = 8_192
_BATCH_WINDOWS = 64
"""Windows of documents in a batch; their activations take some 100 MB."""


class Predictor:
    """Predicts from raw rows. `inputs` is the schema of the rows; `outputs` is an example of predictions, for a row of zeros."""

    def __init__(
        self,
        settings: TaskSettings,
        manifest: Manifest,
        weights: Mapping[str, torch.Tensor],
        decision: Mapping[str, float] | None = None,
    ) -> None:
        """`decision` is what `Task.fit_decision` returned in the training, if it did."""
        features = feature_encoders(manifest)
        self._encoders = Encoders(features)
        self._columns = tensor_columns(features)
        self._task = build_task(settings, manifest, decision)
        self.rows_at_once = self._task.rows_at_once
        """Rows that are computed together, if few are: whoever has many gives them in such pieces, and so holds few predictions."""
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = self._task.model()
        self._model.load_state_dict(dict(weights))
        self._model.to(self._device).eval()
        self._query = manifest.served_query
        self._evaluator = Evaluator() if self._query else None  # MLflow keeps the last model, and with it a database to the very end
        self.inputs = input_schema(manifest)
        self.series_inputs = series_inputs(manifest, self.inputs)
        """The rows that the model takes as well, if windows make some of its inputs: `predict_series` makes those."""
        series_columns = self.series_inputs.schema if self.series_inputs else ()
        self.columns_taken = pa.schema([*self.inputs, *(field for field in series_columns if field.name not in self.inputs.names)])
        """All columns that rows may have: of either kind."""
        self.outputs = self._predict({column.name: np.zeros((1, *column.shape), column.dtype) for column in self._columns})

    def predict(self, raw: pa.Table) -> pd.DataFrame:
        """The columns of `Task.predict` and `refused`, one row per raw row. A row that an encoder refuses has NULL as prediction and the
        reason in `refused`. Raises SourceError if a column is missing."""
        count = self.rows_at_once or _BATCH_ROWS
        return pd.concat([self._predict_batch(raw.slice(start, count)) for start in range(0, max(len(raw), 1), count)], ignore_index=True)

    def predict_frame(self, rows: pd.DataFrame) -> pd.DataFrame:
        """`predict` for the rows of a data frame, with the same index. A row with a value that a column's type does not have is refused
        too. Raises SourceError if a column is missing, or of another sort of values. Rows without columns that windows make are those of
        series, of which no value may be unfit: rows after it have it in their windows."""
        if self.series_inputs and self.series_inputs.are_needed(list(rows.columns)):
            series, unfit = fitting_rows(rows, self.series_inputs.schema)
            if reason := next(filter(None, unfit.to_pylist()), None):
                raise SourceError(f"rows of a series are predicted together, and {reason}; correct the value, or leave its row out")
            return self.predict_series(series).set_axis(rows.index)
        table, unfit = fitting_rows(rows, self.inputs)
        return insert_refused(self.predict(table.filter(pc.is_null(unfit))), unfit).set_axis(rows.index)

    def predict_series(self, rows: pa.Table) -> pd.DataFrame:
        """`predict` for rows with the columns of `series_inputs`, after making those of windows. A row with too few rows before it is
        refused. Raises SourceError if a row has no place in its series."""
        assert self.series_inputs is not None, "windows make inputs of the model"
        windowed, reasons = add_windows_to_rows(rows, self.series_inputs)
        return insert_refused(self.predict(windowed), reasons)

    def _predict_batch(self, raw: pa.Table) -> pd.DataFrame:
        if self._query is None or self._evaluator is None:
            encoded, reasons = self._encoders.encode(raw)
        else:
            queried, dropped = self._evaluator.apply_query(raw, self._query)
            encoded, reasons = self._encoders.encode(queried)
            reasons = pc.replace_with_mask(dropped, pc.is_null(dropped), reasons)
        if not len(encoded):
            predicted = self.outputs.iloc[:0]
        elif self._encoders.packer:
            predicted = self._predict_documents(self._encoders.packer, encoded)
        else:
            predicted = self._predict({column.name: to_numpy(column, encoded[column.name].combine_chunks()) for column in self._columns})
        return insert_refused(predicted.assign(**{REFUSED: pd.Series([None] * len(predicted), dtype=object)}), reasons)

    def _predict_documents(self, packer: Packer, encoded: pa.Table) -> pd.DataFrame:
        """Predictions for documents. Each is cut into its own windows, whose outputs are summed."""
        (name,) = encoded.column_names
        outputs = []
        for document in encoded[name]:
            windows = packer.windows([document.values.to_numpy()])
            count = min(self.rows_at_once or _BATCH_WINDOWS, _BATCH_WINDOWS)
            pieces = [self._output({name: windows[start : start + count]}) for start in range(0, len(windows), count)]
            outputs.append(torch.cat(pieces).sum(dim=0, keepdim=True))
        return pd.DataFrame(self._task.predict(torch.cat(outputs)))

    def _predict(self, arrays: Mapping[str, np.ndarray]) -> pd.DataFrame:
        return pd.DataFrame(self._task.predict(self._output(arrays)))

    def _output(self, arrays: Mapping[str, np.ndarray]) -> torch.Tensor:
        batch = {name: torch.from_numpy(np.array(values)).to(self._device) for name, values in arrays.items()}
        with torch.inference_mode():
            return self._model(batch)


def insert_refused(predicted: pd.DataFrame, reasons: pa.Array) -> pd.DataFrame:
    """The predictions of the rows without a reason, and between them rows without a prediction for those that have one."""
    if reasons.null_count == len(reasons):
        return predicted
    accepted = reasons.is_null().to_pandas()
    spread = predicted.set_axis(np.flatnonzero(accepted)).reindex(range(len(reasons)))
    spread[REFUSED] = spread[REFUSED].where(accepted, reasons.to_pandas())
    return spread


def feature_encoders(manifest: Manifest) -> dict[str, FittedEncoder]:
    """The encoders that prediction needs: all except that of the target."""
    return {name: fitted for name, fitted in manifest.encoders.items() if fitted.column.role == "feature"}


def input_schema(manifest: Manifest) -> pa.Schema:
    """The columns that the served query reads; without one, the columns of the query that features are encoded from."""
    if manifest.served_query:
        return manifest.served_query.input_schema
    read = {column for fitted in feature_encoders(manifest).values() for column in fitted.inputs}
    return pa.schema([field for field in schema_from_text(manifest.raw_schema) if field.name in read])
