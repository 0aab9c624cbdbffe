"""Compares the outputs of written models with those of the model in MLflow, row by row.

A class, a label or an item is a decision, equal or not. Of a quantity, each number of the output decides as the model in MLflow if it
differs from its by no more than a tenth of the standard deviation of this number over the rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torchmetrics import MetricCollection

from pipelines.serving.export.subject import Rows, Subject, count_rows, head, to_tensors
from pipelines.serving.export.targets import Candidate
from pipelines.tasks.metrics.table import format_value, metric_values

Row = dict[str, str | float | int | None]
LEAST_ROWS = 1_000
"""Rows from which the share of equal decisions is known to some 1 %. Where a split has fewer, other rows follow."""
_QUANTITY_TOLERANCE = 0.1
"""In standard deviations of the output in MLflow."""
_SAME = 1e-3
"""Permitted difference, relative for numbers beyond 1, of an output that is the same for all rows."""


@dataclass
class ParitySums:
    """Sums over the rows so far."""

    metrics: MetricCollection
    rows: int = 0
    other_rows: int = 0
    """Rows that are not of the split, without metrics."""
    decided: int = 0
    """Decisions: one of each row, or of each pixel or number of its output."""
    equal: int = 0
    max_difference: float = 0.0
    seconds: float = 0.0
    differing: list[int] = field(default_factory=list)
    """Numbers of the first rows of the split with another decision."""
    spread: np.ndarray | None = None
    """Standard deviation of each number of the output in MLflow, in the first batch."""


def compare_outputs(
    subject: Subject, candidates: Mapping[str, Candidate], batch_rows: int, split: str = "test", least_rows: int = 0
) -> list[Row]:
    """Compare each candidate with the model in MLflow. Returns a row for each model, that in MLflow first: largest difference of an output,
    share of equal decisions, bytes, rows per second, and the metrics of the split.

    The rows are encoded anew from their raw numbers, with the encoders of the model in MLflow. If the split has fewer than `least_rows`,
    those of other splits follow, and then rows whose columns are drawn from different rows.
    """
    sums = {name: ParitySums(subject.task.metrics()) for name in ("mlflow", *candidates)}
    missing_rows = least_rows - subject.version.rows(split)
    other_rows = subject.other_rows(split, missing_rows, batch_rows) if missing_rows > 0 else ()
    for stored, is_of_split in chain(zip(subject.rows(split, batch_rows), repeat(True)), zip(other_rows, repeat(False))):
        raw = subject.numeric.raw(stored)
        rows = {**stored, **subject.numeric.encode(raw)}
        expected = _run(sums["mlflow"], subject.output, rows)
        _add(sums["mlflow"], subject, rows, expected, expected, is_of_split)
        for name, candidate in candidates.items():
            count = count_rows(rows) if candidate.rows is None else min(candidate.rows - sums[name].rows, count_rows(rows))
            if count > 0:
                inputs = subject.features(head(raw if candidate.takes_raw_numbers else rows, count))
                _add(sums[name], subject, head(rows, count), expected[:count], _run(sums[name], candidate.run, inputs), is_of_split)
    weights = sum(tensor.nbytes for tensor in subject.network.state_dict().values())
    report: list[Row] = []
    for name, total in sums.items():
        written = candidates.get(name)
        row = _report_row(name, total, written.bytes if written else weights)
        report.append({**row, **written.about} if written else row)
    return report


def _report_row(name: str, sums: ParitySums, size: int) -> Row:
    return {
        "model": name,
        "rows": sums.rows,
        "other_rows": sums.other_rows,
        "max_difference": sums.max_difference,
        "equal_decisions": sums.equal / sums.decided if sums.decided else None,
        "first_differing": ", ".join(map(str, sums.differing[:10])),
        "bytes": size,
        "rows_per_second": sums.rows / sums.seconds if sums.seconds else None,
        **{metric: format_value(value) if isinstance(value, str) else value for metric, value in metric_values(sums.metrics).items()},
    }


def _run(sums: ParitySums, run: Any, rows: Rows) -> np.ndarray:
    """The output for a batch. Adds the seconds to the sums."""
    if not sums.rows:
        run(head(rows, 2))  # the first call allocates
    start = perf_counter()
    output = run(rows)
    sums.seconds += perf_counter() - start
    return np.asarray(output)


def _add(sums: ParitySums, subject: Subject, rows: Rows, expected: np.ndarray, output: np.ndarray, is_of_split: bool) -> None:
    """Add a batch. A difference where only one of two outputs is finite is infinite."""
    if is_of_split:
        subject.task.update(sums.metrics, torch.from_numpy(output), to_tensors(rows))
    differences = np.abs(output.astype(np.float64) - expected)
    differences[np.isnan(output) & np.isnan(expected)] = 0
    sums.max_difference = max(sums.max_difference, float(np.nan_to_num(differences, nan=np.inf).max(initial=0)))
    if sums.spread is None:
        sums.spread = expected.astype(np.float64).std(axis=0)
    is_equal = _decides_equally(subject, expected, output, sums.spread)
    sums.decided, sums.equal = sums.decided + is_equal.size, sums.equal + int(is_equal.sum())
    if is_of_split:
        sums.differing += [sums.rows + int(row) for row in np.unique(np.nonzero(~is_equal)[0])[:10]]
        sums.rows += count_rows(rows)
    else:
        sums.other_rows += count_rows(rows)


def _decides_equally(subject: Subject, expected: np.ndarray, output: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Whether each decision is that of the model in MLflow: bool of shape (rows, …)."""
    predicted, predicted_in_mlflow = (
        np.asarray(subject.task.predict(torch.from_numpy(values)).get("prediction", 0.0)) for values in (output, expected)
    )
    if predicted.dtype.kind != "f":
        return np.asarray(predicted == predicted_in_mlflow)
    wide = expected.astype(np.float64)
    permitted = np.where(spread > 0, _QUANTITY_TOLERANCE * spread, _SAME * np.maximum(np.abs(wide), 1))
    return (np.abs(output - wide) <= permitted) | (np.isnan(output) & np.isnan(wide))
