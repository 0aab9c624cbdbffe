"""The program of an exported folder: predicts from raw rows with the model's very encoders, ONNX Runtime, Arrow and NumPy. Rows are JSON:
bytes are base64, times ISO 8601, decimals text, and null is a missing value.

`predict_script` takes this module into the archive of a folder, with all that it imports: nothing of pydantic, torch or MLflow.
"""

import argparse
import base64
import binascii
import json
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.data.features.arrays import is_bytes
from pipelines.data.features.base import Encoder
from pipelines.data.features.raw import is_list, is_text, numbers
from pipelines.data.features.row_encoders import RowEncoder, RowEncoders
from pipelines.data.versions.schema import TensorColumn, schema_from_text, to_numpy
from pipelines.errors import LockstepError
from pipelines.tasks.answers import find_answer

_WIDE = Context(prec=80)
_FAULTS = (ValueError, TypeError, ArithmeticError, NotImplementedError)
"""What Python and Arrow raise for a value of another type."""
_FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
Read = Callable[[Any], Any]
EXAMPLES = "examples.json"
Predict = Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]]
_BATCH_ROWS = 1_024


def rows_from_json(rows: Sequence[Mapping[str, Any]], schema: pa.Schema, first: int = 0) -> pa.Table:
    """The columns of `schema`. Raises ValueError if a row lacks a column, or has a value of another type; `first` is the number of the
    first row there."""
    for number, row in enumerate(rows, first):
        if not isinstance(row, Mapping):
            raise ValueError(f"row {number} is {row!r:.80}, and a row is a JSON object")
        if missing := next((name for name in schema.names if name not in row), None):
            raise ValueError(f"row {number} has no column {missing}; a row has {', '.join(schema.names)}, with null for what is missing")
    columns = []
    for field in schema:
        read, values = _reader(field.type), [row[field.name] for row in rows]
        try:
            columns.append(pa.array([read(value) for value in values], field.type))
        except _FAULTS:
            for number, value in enumerate(values, first):
                try:
                    pa.array([read(value)], field.type)
                except _FAULTS as error:
                    raise ValueError(f"row {number}: column {field.name} takes {field.type}, and this is {value!r:.80}") from error
            raise
    return pa.Table.from_arrays(columns, schema=schema)


def _reader(kind: pa.DataType) -> Read:
    """Converts a value of JSON to one that Arrow takes for this type; NaN is NULL. Raises an error of `_FAULTS` for other types."""
    read = _value_reader(kind)
    return lambda value: None if value is None or (isinstance(value, float) and math.isnan(value)) else read(value)


def _value_reader(kind: pa.DataType) -> Read:
    if is_list(kind):
        inner = _reader(kind.value_type)
        return lambda value: [inner(item) for item in _instance(value, list, tuple, np.ndarray)]
    if types.is_struct(kind):
        fields = {field.name: _reader(field.type) for field in kind}
        return lambda value: {name: read(_instance(value, dict).get(name)) for name, read in fields.items()}
    if types.is_integer(kind):
        return _whole_number
    if types.is_floating(kind):
        dtype = _FLOATS[kind.bit_width]
        return lambda value: dtype(float(_instance(value, float, int, np.floating, np.integer)))
    if types.is_decimal(kind):
        last_place = Decimal(1).scaleb(-kind.scale)
        return lambda value: Decimal(_instance(value, str, int, float, Decimal)).quantize(last_place, ROUND_HALF_EVEN, _WIDE)
    if types.is_timestamp(kind) or types.is_date(kind):
        unit: Any = kind.unit if types.is_timestamp(kind) else "D" if types.is_date32(kind) else "ms"
        return lambda value: np.datetime64(_instant(value), unit).astype(np.int64).item()
    if is_bytes(kind):
        return _bytes
    of_type = bool if types.is_boolean(kind) else str if is_text(kind) else object
    return lambda value: _instance(value, of_type)


def _instance(value: Any, *classes: type) -> Any:
    if not isinstance(value, classes) or (isinstance(value, bool) and not {bool, object} & {*classes}):
        raise TypeError(f"{value!r:.80} is no {classes[0].__name__}")
    return value


def _whole_number(value: Any) -> int:
    number = int(_instance(value, int, float, np.integer, np.floating))
    if number != value:
        raise ValueError(f"{value} is no whole number")
    return number


def _instant(value: Any) -> Any:
    """ISO 8601, in UTC if it has a zone."""
    return value.replace("Z", "").replace("+00:00", "") if isinstance(value, str) else value


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    try:
        return base64.b64decode(_instance(value, str), validate=True)
    except binascii.Error as error:
        raise ValueError("it is not base64") from error


def rows_to_json(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows that `rows_from_json` reads."""
    return [{name: json_value(value) for name, value in row.items()} for row in rows.to_pylist()]


def json_value(value: Any) -> Any:
    """The value as JSON has it; None for numbers that are not finite."""
    if isinstance(value, (list, np.ndarray)):
        return [json_value(item) for item in value]
    if isinstance(value, np.generic):
        return json_value(value.item())
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_examples(folder: Path, predict: Predict, inexact: Collection[str] = ()) -> str:
    """A line that says how many examples agree, without the columns that are `inexact`. Raises ValueError for the first one that does not.
    A model in 8 bits need not agree in numbers: of its examples, those that are refused must be the same."""
    examples = json.loads((folder / EXAMPLES).read_bytes())
    predictions = predict(examples["rows"])
    for number, (prediction, expected) in enumerate(zip(predictions, examples["predictions"], strict=True)):
        names = (expected.keys() | prediction.keys()).difference(inexact) if examples["exact"] else {"refused"}
        value, target = ({name: row[name] for name in names if name in row} for row in (prediction, expected))
        if difference := next(_differences(value, target, examples["tolerance"]), None):
            raise ValueError(f"example {number}: {difference}")
    if examples["exact"]:
        return f"{len(predictions)} examples agree"
    pairs = [
        (value["prediction"], other["prediction"])
        for value, other in zip(predictions, examples["predictions"], strict=True)
        if isinstance(other.get("prediction"), str)
    ]
    decisions = f", and {sum(value == other for value, other in pairs)} of {len(pairs)} decisions are equal" if pairs else ""
    return f"of {len(predictions)} examples, the same are refused{decisions}"


def _differences(value: Any, expected: Any, tolerance: float) -> Iterator[str]:
    """The differences of two predictions: numbers by more than the tolerance, relative beyond 1; anything else at all."""
    if isinstance(expected, dict):
        for name in expected.keys() | value.keys():
            yield from (f"{name}: {text}" for text in _differences(value.get(name), expected.get(name), tolerance))
    elif isinstance(expected, list) and isinstance(value, list) and len(value) == len(expected):
        for item, expected_item in zip(value, expected, strict=True):
            yield from _differences(item, expected_item, tolerance)
    elif isinstance(expected, float) and isinstance(value, (int, float)):
        if not math.isclose(value, expected, rel_tol=tolerance, abs_tol=tolerance):
            yield f"{value} instead of {expected}"
    elif value != expected:
        yield f"{value!r:.80} instead of {expected!r:.80}"


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
        """A prediction for each row; `refused` has the reason why a row has none, or None. Errors count rows from `first`. Raises
        ValueError if a row lacks a column, or has a value of another type."""
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
    """The encoder that `export_folder.encoder_in_json` describes."""
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
