"""The program of an exported folder: predicts from raw rows with the very encoders of the model, ONNX Runtime, Arrow and NumPy.

`modules` takes this module into the archive of a folder, with all that it imports: nothing of pydantic, torch or MLflow.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.data.features.base import Encoder
from pipelines.data.features.raw import numbers
from pipelines.data.features.row_encoders import RowEncoder, RowEncoders
from pipelines.data.versions.schema import TensorColumn, schema_from_text, to_numpy
from pipelines.errors import LockstepError
from pipelines.serving.export.example_check import check_examples
from pipelines.serving.export.json_rows import json_value, rows_from_json
from pipelines.tasks.answers import find_answer

_BATCH_ROWS = 1_024


class Model:
    """The network of a folder with the encoders of its manifest."""

    def __init__(self, folder: str | Path) -> None:
        import onnxruntime  # noqa: PLC0415, which only who predicts has installed

        self.manifest: Mapping[str, Any] = json.loads(Path(folder, "manifest.json").read_bytes())
        self.schema = schema_from_text(self.manifest["schema"])
        """The columns of a raw row."""
        self.batch_rows = self.manifest.get("rows_at_once") or _BATCH_ROWS
        encoders = {entry["name"]: restore_row_encoder(entry.get("encoded by") or entry["refuses"]) for entry in self.manifest["inputs"]}
        self._row_encoders = RowEncoders(encoders)
        self._columns = {name: encoder.column for name, encoder in encoders.items()}
        self._form = self.manifest["answer"]
        self._answer = find_answer(self._form)
        self._decode = restore_row_encoder(self._form["target"]).encoder.decode if "target" in self._form else np.asarray
        self._session = onnxruntime.InferenceSession(str(Path(folder, "model.onnx")), providers=["CPUExecutionProvider"])
        self._input_names = {graph_input.name for graph_input in self._session.get_inputs()}

    def predict(self, rows: Sequence[Mapping[str, Any]], first: int = 0) -> list[dict[str, Any]]:
        """A prediction for each row; `refused` has the reason why a row has none, or None. Errors count rows from `first`.

        Raises ValueError if a row lacks a column, or has a value of another type.
        """
        raw = rows_from_json(rows, self.schema, first)
        encoded, reasons = self._row_encoders.encode(raw)
        predictions: list[dict[str, Any]] = [{"refused": reason} for reason in reasons.to_pylist()]
        accepted = np.flatnonzero(reasons.is_null().to_numpy(zero_copy_only=False))
        if len(accepted):
            output = self._output(encoded, raw.take(pa.array(accepted)))
            with np.errstate(over="ignore", invalid="ignore"):
                columns = self._answer(output, self._form, self._decode)
            for number, values in zip(accepted.tolist(), zip(*columns.values(), strict=True), strict=True):
                predictions[number] = {**dict(zip(columns, map(json_value, values), strict=True)), "refused": None}
        return predictions

    def _output(self, encoded: pa.Table, raw: pa.Table) -> np.ndarray:
        """The output of the network, which encodes some of the raw numbers by itself."""
        if self._row_encoders.packer:
            (name,) = encoded.column_names
            documents = [self._row_encoders.packer.windows([document.values.to_numpy()]) for document in encoded[name]]
            return np.stack([self._batches({name: windows}).astype(np.float64).sum(axis=0) for windows in documents])
        inputs = {}
        for entry in self.manifest["inputs"]:
            name = entry["name"]
            if "refuses" in entry:
                inputs[name] = numbers(raw[entry["refuses"]["columns"][0]].combine_chunks())
            else:
                inputs[name] = to_numpy(self._columns[name], encoded[name].combine_chunks()).astype(entry["dtype"], copy=False)
        return self._batches(inputs)

    def _batches(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        count = len(next(iter(inputs.values())))
        columns = {name: values for name, values in inputs.items() if name in self._input_names}
        batches = [
            {name: np.ascontiguousarray(values[start : start + self.batch_rows]) for name, values in columns.items()}
            for start in range(0, count, self.batch_rows)
        ]
        return np.concatenate([self._session.run(None, batch)[0] for batch in batches])


def restore_row_encoder(description: Mapping[str, Any]) -> RowEncoder:
    """The encoder that `artifact.encoder_in_json` describes."""
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in description["encoder"].items()}
    module, _, name = description["implementation"].partition(":")
    encoder: Encoder[Any] = getattr(import_module(module), name)(SimpleNamespace(**settings), description["state"])
    column = {**description["column"], "shape": tuple(description["column"]["shape"])}
    return RowEncoder(encoder, str(settings["encoder"]), tuple(description["columns"]), TensorColumn(**column))


def main(folder: Path, description: str) -> None:
    """Predict the rows of a file of JSON lines, or check the examples of the folder."""
    parser = argparse.ArgumentParser("predict.py", description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", default="-", help="a file of JSON objects, one a line; - is standard input")
    parser.add_argument("--check", action="store_true", help="predict the rows of examples.json, and compare")
    arguments = parser.parse_args()
    try:
        model = Model(folder)
        if arguments.check:
            print(check_examples(folder, model.predict, model.manifest["answer"].get("inexact", ())))
        else:
            _predict_file(model, arguments.rows)
    except BrokenPipeError:  # whoever reads the predictions has ended
        pass
    except (ValueError, OSError, LockstepError) as error:
        sys.exit(f"error: {error}")


def _predict_file(model: Model, path: str) -> None:
    first = 0
    # JSON is UTF-8, whatever the locale says.
    with open(0 if path == "-" else path, encoding="utf-8") as file, open(1, "w", encoding="utf-8") as output:
        lines = (json.loads(line) for line in file if line.strip())
        while rows := list(islice(lines, model.batch_rows)):
            for prediction in model.predict(rows, first):
                print(json.dumps(prediction, ensure_ascii=False, allow_nan=False), file=output)
            first += len(rows)
