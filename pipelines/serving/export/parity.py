"""Compares the outputs of written models with those of the model in MLflow, row by row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torchmetrics import MetricCollection

from pipelines.serving.export.subject import Rows, Subject, count_rows, head, to_tensors
from pipelines.serving.export.targets import Candidate
from pipelines.tasks.metrics.values import format_value, metric_values

Row = dict[str, str | float | int | None]


@dataclass
class ParitySums:
    """Sums over the rows so far."""

    metrics: MetricCollection
    rows: int = 0
    decided: int = 0
    """Rows, or pixels of rows, whose prediction is a class or an item, and not a quantity."""
    equal: int = 0
    max_difference: float = 0.0
    seconds: float = 0.0
    differing: list[int] = field(default_factory=list)
    """Numbers of the first rows of the split with another decision."""


def compare_outputs(subject: Subject, candidates: Mapping[str, Candidate], batch_rows: int, split: str = "test") -> list[Row]:
    """Compare each candidate with the model in MLflow. Returns a row for each model, that in MLflow first: largest difference of an output,
    share of equal decisions, bytes, rows per second, and the metrics of the split.

    The rows are encoded anew from their raw numbers, with the encoders of the model in MLflow.
    """
    sums = {name: ParitySums(subject.task.metrics()) for name in ("mlflow", *candidates)}
    for stored in subject.rows(split, batch_rows):
        raw = subject.numeric.raw(stored)
        rows = {**stored, **subject.numeric.encode(raw)}
        expected = _run(sums["mlflow"], subject.output, rows)
        _add(sums["mlflow"], subject, rows, expected, expected)
        for name, candidate in candidates.items():
            count = count_rows(rows) if candidate.rows is None else min(candidate.rows - sums[name].rows, count_rows(rows))
            if count > 0:
                inputs = subject.features(head(raw if candidate.takes_raw_numbers else rows, count))
                _add(sums[name], subject, head(rows, count), expected[:count], _run(sums[name], candidate.run, inputs))
    weights = sum(tensor.nbytes for tensor in subject.network.state_dict().values())
    sizes = {"mlflow": weights} | {name: candidate.bytes for name, candidate in candidates.items()}
    about: dict[str, Mapping[str, Any]] = {name: candidate.about for name, candidate in candidates.items()}
    return [{**_row(name, model_sums, sizes[name]), **about.get(name, {})} for name, model_sums in sums.items()]


def _run(sums: ParitySums, run: Any, rows: Rows) -> np.ndarray:
    """The output for a batch. Adds the seconds to the sums."""
    if not sums.rows:
        run(head(rows, 2))  # the first call allocates
    start = perf_counter()
    output = run(rows)
    sums.seconds += perf_counter() - start
    return np.asarray(output)


def _add(sums: ParitySums, subject: Subject, rows: Rows, expected: np.ndarray, output: np.ndarray) -> None:
    """Add a batch. A difference where only one of two outputs is finite is infinite."""
    subject.task.update(sums.metrics, torch.from_numpy(output), to_tensors(rows))
    differences = np.abs(output.astype(np.float64) - expected)
    differences[np.isnan(output) & np.isnan(expected)] = 0
    sums.max_difference = max(sums.max_difference, float(np.nan_to_num(differences, nan=np.inf).max(initial=0)))
    if (decisions := _decisions(subject, expected)) is not None:
        equal = decisions == _decisions(subject, output)
        sums.differing += [sums.rows + int(row) for row in np.unique(np.nonzero(~equal)[0])[:10]]
        sums.decided, sums.equal = sums.decided + equal.size, sums.equal + int(equal.sum())
    sums.rows += count_rows(rows)


def _decisions(subject: Subject, output: np.ndarray) -> np.ndarray | None:
    """The prediction of each row, of masks each pixel's; None if it is a quantity, which has no equal or unequal."""
    predicted = np.asarray(subject.task.predict(torch.from_numpy(output)).get("prediction", 0.0))
    return None if predicted.dtype.kind == "f" else predicted


def _row(name: str, sums: ParitySums, size: int) -> Row:
    return {
        "model": name,
        "rows": sums.rows,
        "max_difference": sums.max_difference,
        "equal_decisions": sums.equal / sums.decided if sums.decided else None,
        "first_differing": ", ".join(map(str, sums.differing[:10])),
        "bytes": size,
        "rows_per_second": sums.rows / sums.seconds if sums.seconds else None,
        **{name: format_value(value) if isinstance(value, str) else value for name, value in metric_values(sums.metrics).items()},
    }
