"""Predicts from raw rows with the model of this folder.

    python predict.py rows.jsonl > predictions.jsonl    # one JSON object a line; - reads standard input
    python predict.py --check                           # predicts the rows of examples.json, and compares

In Python: `Model(folder).predict([{"column": value, …}])`.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.serving.export.standalone.answers import ANSWERS, LEFT_OUT
from pipelines.serving.export.standalone.columns import ENCODERS, FAULTS, Column, float_values, parse_columns

_CANNOT, _MAX_CHARACTERS = " cannot encode ", 40
_BATCH_ROWS = 1_024


class Model:
    """The network of a folder with the encoders of its manifest."""

    def __init__(self, folder: str | Path) -> None:
        import onnxruntime  # noqa: PLC0415, which only this needs

        self.manifest = json.loads(Path(folder, "manifest.json").read_bytes())
        self.kinds: Mapping[str, str] = self.manifest["rows"]
        """The type of each column of a raw row."""
        self._form = self.manifest["answer"]
        self.left_out = LEFT_OUT.get(self._form["form"], frozenset())
        """Columns of predictions that the examples do not have."""
        self._session = onnxruntime.InferenceSession(str(Path(folder, "model.onnx")), providers=["CPUExecutionProvider"])
        self._input_names = {graph_input.name for graph_input in self._session.get_inputs()}

    def predict(self, rows: Sequence[Mapping[str, Any]], first: int = 0) -> list[dict[str, Any]]:
        """A prediction for each row; `refused` has the reason why a row has none, or None. Errors count rows from `first`.

        Raises ValueError if a row lacks a column, or has a value of another type.
        """
        columns = parse_columns(rows, self.kinds, first)
        inputs, reasons = self._encode(columns, len(rows))
        accepted = [number for number, reason in enumerate(reasons) if reason is None]
        predictions: list[dict[str, Any]] = [{"refused": reason} for reason in reasons]
        if accepted:
            output = self._output({name: values[accepted] for name, values in inputs.items()})
            with np.errstate(over="ignore", invalid="ignore"):
                answers = ANSWERS[self._form["form"]](output, self._form)
            for number, prediction in zip(accepted, answers, strict=True):
                predictions[number] = {**{name: finite(value) for name, value in prediction.items()}, "refused": None}
        return predictions

    def _encode(self, columns: Mapping[str, Column], count: int) -> tuple[dict[str, np.ndarray], list[str | None]]:
        """The inputs of the network, and for each row why an encoder refuses it. The network itself encodes some numbers."""
        inputs, reasons = dict[str, np.ndarray](), list[str | None]([None] * count)
        for entry in self.manifest["inputs"]:
            fitted = entry.get("encoded by") or entry["refuses"]
            raw, settings = fitted["columns"], fitted["encoder"]
            read = [columns[name] for name in raw]
            values, refused = ENCODERS[encoder_name(settings)](settings, fitted["state"], *read)
            for row in np.flatnonzero(refused).tolist():
                texts = [short(column.values[row]) for column in read]
                named = texts if len(texts) == 1 else [f"{name} {text}" for name, text in zip(raw, texts, strict=True)]
                fault = FAULTS.get(encoder_name(settings), lambda *_: "")(settings, *[column.values[row] for column in read])
                reason = f"{entry['name']}: {settings['encoder']}{_CANNOT}{', '.join(named)}{f': {fault}' if fault else ''}"
                reasons[row] = reasons[row] or reason
            inputs[entry["name"]] = float_values(*read) if "refuses" in entry else values
        return inputs, reasons

    def _output(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        if self.manifest["packs"]:
            (entry,) = self.manifest["inputs"]
            name, width, dtype = entry["name"], entry["shape"][0], entry["dtype"]
            documents = [windows(document, width - 1, dtype) for document in inputs[name]]
            return np.stack([self._batches({name: document}).astype(np.float64).sum(axis=0) for document in documents])
        return self._batches({entry["name"]: inputs[entry["name"]].astype(entry["dtype"]) for entry in self.manifest["inputs"]})

    def _batches(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        count = len(next(iter(inputs.values())))
        columns = {name: values for name, values in inputs.items() if name in self._input_names}
        batch_rows = self.manifest.get("rows_at_once") or _BATCH_ROWS
        batches = [
            {name: np.ascontiguousarray(values[start : start + batch_rows]) for name, values in columns.items()}
            for start in range(0, count, batch_rows)
        ]
        return np.concatenate([self._session.run(None, batch)[0] for batch in batches])


def windows(document: np.ndarray, length: int, dtype: str) -> np.ndarray:
    """The document between two END, in windows of `length` + 1 tokens that each begin with the last token of the one before. END pads
    the last one. Shape (windows, length + 1)."""
    count = -(-(len(document) + 1) // length)
    stream = np.full(count * length + 1, 0, dtype)
    stream[1 : 1 + len(document)] = document
    return np.lib.stride_tricks.sliding_window_view(stream, length + 1)[::length]


def finite(value: Any) -> Any:
    """The value with None in place of numbers that JSON does not have: NaN and infinite ones."""
    if isinstance(value, list) and value and isinstance(value[0], (float, list)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def encoder_name(settings: Mapping[str, Any]) -> str:
    """`identity` with a shape is another encoder than that of single numbers."""
    return "array" if settings["encoder"] == "identity" and settings["shape"] else str(settings["encoder"])


def short(value: Any) -> str:
    """The beginning of a value, for a reason."""
    value = value.item() if isinstance(value, np.datetime64) else value
    text = "NULL" if value is None else f"{len(value)} bytes" if isinstance(value, bytes) else str(value)
    if not text:
        return "empty text"
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def differences(value: Any, expected: Any, tolerance: float) -> Iterator[str]:
    """The differences of two predictions: numbers by more than the tolerance, relative beyond 1; anything else at all."""
    if isinstance(expected, dict):
        for name in expected.keys() | value.keys():
            yield from (f"{name}: {text}" for text in differences(value.get(name), expected.get(name), tolerance))
    elif isinstance(expected, list) and isinstance(value, list) and len(value) == len(expected):
        for item, expected_item in zip(value, expected, strict=True):
            yield from differences(item, expected_item, tolerance)
    elif isinstance(expected, float) and isinstance(value, (int, float)):
        if not math.isclose(value, expected, rel_tol=tolerance, abs_tol=tolerance):
            yield f"{value} instead of {expected}"
    elif value != expected:
        yield f"{value!r:.80} instead of {expected!r:.80}"


def check_examples(folder: Path) -> str:
    """A line that says how many examples agree. Raises ValueError for the first one that does not. A model in 8 bits need not agree in
    numbers: of its examples, those that are refused must be the same."""
    examples = json.loads((folder / "examples.json").read_bytes())
    model = Model(folder)
    predictions = model.predict(examples["rows"])
    for number, (prediction, expected) in enumerate(zip(predictions, examples["predictions"], strict=True)):
        names = (expected.keys() | prediction.keys()) - model.left_out if examples["exact"] else {"refused"}
        value, target = ({name: row[name] for name in names if name in row} for row in (prediction, expected))
        if difference := next(differences(value, target, examples["tolerance"]), None):
            raise ValueError(f"example {number}: {difference}")
    if examples["exact"]:
        return f"{len(predictions)} examples agree"
    pairs = [(value["prediction"], other["prediction"]) for value, other in zip(predictions, examples["predictions"], strict=True)
             if isinstance(other.get("prediction"), str)]  # fmt: skip
    decisions = f", and {sum(value == other for value, other in pairs)} of {len(pairs)} decisions are equal" if pairs else ""
    return f"of {len(predictions)} examples, the same are refused{decisions}"


def main() -> None:
    folder = Path(__file__).parent
    parser = argparse.ArgumentParser("predict.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", default="-", help="a file of JSON objects, one a line; - is standard input")
    parser.add_argument("--check", action="store_true", help="predict the rows of examples.json, and compare")
    arguments = parser.parse_args()
    try:
        if arguments.check:
            print(check_examples(folder))
            return
        model, first = Model(folder), 0
        # JSON is UTF-8, whatever the locale says.
        with open(0 if arguments.rows == "-" else arguments.rows, encoding="utf-8") as file, open(1, "w", encoding="utf-8") as output:
            lines = (json.loads(line) for line in file if line.strip())
            while rows := list(islice(lines, model.manifest.get("rows_at_once") or _BATCH_ROWS)):
                for prediction in model.predict(rows, first):
                    print(json.dumps(prediction, ensure_ascii=False, allow_nan=False), file=output)
                first += len(rows)
    except BrokenPipeError:  # whoever reads the predictions has ended
        pass
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
