"""Mean and deviation of the metrics of a cross-validation, in numbers and in words."""

from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import fmean, stdev

MEAN, DEVIATION = "_mean", "_std"
"""Endings of the names of a metric's mean and sample standard deviation over folds."""

FoldMetrics = Mapping[int, Mapping[str, float]]
"""Metrics by name, of each fold by its number."""


def summarize_metrics(metrics: FoldMetrics) -> dict[str, float]:
    """Mean of each metric over the folds where it is defined, and its sample standard deviation over at least two."""
    summary: dict[str, float] = {}
    for name, values in values_by_name(metrics).items():
        summary[f"{name}{MEAN}"] = _mean(values)
        if (deviation := _deviation(values)) is not None:
            summary[f"{name}{DEVIATION}"] = deviation
    return summary


def metrics_line(metrics: FoldMetrics, split: str, repeats: int) -> str:
    """`test auc 0.912 ± 0.008, accuracy 0.861 ± 0.005 over 5 folds`; empty if the split has no metric."""
    parts = []
    for name, values in split_values(metrics, split).items():
        count = f" (defined in {len(values)} of {len(metrics)})" if len(values) < len(metrics) else ""
        parts.append(f"{name.removeprefix(f'{split}/')} {describe_mean(values)}{count}")
    times = f", {repeats} times" if repeats > 1 else ""
    return f"{split} {', '.join(parts)} over {len(metrics) // repeats} folds{times}" if parts else ""


def fold_table(metrics: FoldMetrics, split: str) -> str:
    """The metrics of each fold as a table in Markdown; empty if the split has no metric."""
    names = list(split_values(metrics, split))
    if not names:
        return ""
    lines = [f"| fold | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for fold, values in sorted(metrics.items()):
        cells = [f"{values[name]:.4g}" if name in values else "undefined" for name in names]
        lines.append(f"| {fold} | {' | '.join(cells)} |")
    return "\n".join(lines)


def values_by_name(metrics: FoldMetrics) -> dict[str, list[float]]:
    """The values of each metric in the folds where it is defined, in the order of the folds."""
    names = dict.fromkeys(name for values in metrics.values() for name in values)
    return {name: [values[name] for _, values in sorted(metrics.items()) if name in values] for name in names}


def split_values(metrics: FoldMetrics, split: str) -> dict[str, list[float]]:
    """`values_by_name` of the metrics of one split."""
    return {name: values for name, values in values_by_name(metrics).items() if name.startswith(f"{split}/")}


def describe_mean(values: Sequence[float]) -> str:
    """`0.912 ± 0.008`; without a deviation for one fold, and where a value is infinite."""
    deviation = _deviation(values)
    return f"{_mean(values):.4g}" + ("" if deviation is None else f" ± {deviation:.2g}")


def _deviation(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 and all(map(isfinite, values)) else None


def _mean(values: Sequence[float]) -> float:
    """The mean; an infinite value or NaN if a value is, which `fmean` may refuse."""
    return fmean(values) if all(map(isfinite, values)) else sum(values) / len(values)
