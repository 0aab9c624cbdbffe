"""Says in words which of several runs is better, by how much, and whether beyond chance."""

from collections.abc import Iterator, Mapping, Sequence

from pipelines.report.better import Difference, metric_difference
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.parts import Note
from pipelines.report.rendering import readable
from pipelines.report.run_data import RunData

Runs = Mapping[str, RunData]
"""Runs by their letter."""


def verdicts(runs: Runs) -> list[Note]:
    """A note for the best run against each other one; empty if fewer than two runs have an evaluation."""
    for name in ("test", "validation"):
        splits = {letter: split for letter, run in runs.items() for split in run.splits if split.name == name}
        metric = next((str(split.summary["monitor"]) for split in splits.values() if "monitor" in split.summary), "")
        values = {
            letter: value
            for letter, split in splits.items()
            if isinstance(value := split.summary.get("metrics", {}).get(metric), float | int)
        }
        if len(values) >= 2:
            return list(_verdicts(metric, values, splits, runs))
    return []


def better_direction(splits: Sequence[SplitEvaluation], metric: str) -> str:
    """`higher` or `lower`, whichever is better of a metric; empty if the evaluations do not say."""
    return next((str(direction) for split in splits if (direction := split.summary.get("better", {}).get(metric))), "")


def _verdicts(metric: str, values: Mapping[str, float], splits: Mapping[str, SplitEvaluation], runs: Runs) -> Iterator[Note]:
    best_of = max if better_direction(list(splits.values()), metric) == "higher" else min
    best = best_of(values, key=lambda letter: values[letter])
    for other in values:
        if other == best:
            continue
        title = f"{splits[best].name} {metric}"
        scores = f"{title} {readable(values[best])} against {readable(values[other])}, "
        if values[best] == values[other]:
            yield Note(f"{best} and {other} are equal: {title} {readable(values[best])}.")
        elif len(digests := {runs[letter].run.tags.get("dataset.digest", "?") for letter in (best, other)}) > 1:
            datasets = " and ".join(sorted(digest[:12] for digest in digests))
            yield Note(
                f"{best} is ahead of {other}: {scores}but on other rows (datasets {datasets}), so nobody can tell whether that is chance.",
                "warning",
            )
        elif (measured := metric_difference(metric, splits[best], splits[other], len(values) - 1)) is None:
            yield Note(
                f"{best} is ahead of {other}: {scores}by {readable(abs(values[best] - values[other]))}. What was kept of the rows does not "
                "tell whether that is chance."
            )
        else:
            yield _verdict(best, other, scores, measured)


def _verdict(best: str, other: str, scores: str, measured: Difference) -> Note:
    low, high = (measured.low, measured.high) if measured.value > 0 else (-measured.high, -measured.low)
    interval = f"95 % interval {readable(low)} to {readable(high)}, on the same {measured.rows:,} rows"
    margin = f"{scores}by {readable(abs(measured.value))} ({interval})"
    if measured.is_beyond_chance:
        return Note(f"{best} is better than {other}: {margin}: beyond chance.", "good")
    return Note(f"{best} is ahead of {other}, but by no more than chance may give: {margin}.")
