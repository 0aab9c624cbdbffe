"""In words: which of several runs is better, by how much, and whether beyond chance."""

from collections.abc import Iterator, Mapping, Sequence

from pipelines.report.better import Difference, difference
from pipelines.report.evaluation import Split
from pipelines.report.page import Html, element, note, text
from pipelines.report.run_data import Material

_METHOD = (
    "Chance is that of the rows: on other rows of the same kind, the difference lies within the interval in 95 of 100 cases. It comes "
    "from what both models made of the same rows (paired; the ROC area by DeLong, DeLong and Clarke-Pearson 1988), and is widened by "
    "Bonferroni's rule among several runs. How much another seed would change a model is not in it, and only several trainings tell."
)
Named = Mapping[str, Material]
"""Runs by their letter."""


def verdicts(named: Named) -> list[Html]:
    """A note for the best run against each other one, and how it was found; or why there is none."""
    for name in ("test", "validation"):
        splits = {letter: split for letter, one in named.items() for split in one.splits if split.name == name}
        metric, is_higher_better = _monitor(list(splits.values()))
        values = {
            letter: value
            for letter, split in splits.items()
            if isinstance(value := split.summary.get("metrics", {}).get(metric), float | int)
        }
        if len(values) >= 2:
            return [*_notes(f"{name} {metric}", metric, values, splits, named, is_higher_better), element("p", _METHOD, kind="small")]
    return [note("Fewer than two of these runs have an evaluation, so none can be said to be better.")]


def better(splits: Sequence[Split], metric: str) -> str:
    """`higher` or `lower`, whichever is better of a metric; empty if the evaluations do not say."""
    return next((str(found) for split in splits if (found := split.summary.get("better", {}).get(metric))), "")


def _monitor(splits: Sequence[Split]) -> tuple[str, bool]:
    """The metric that chooses the best epoch of the first run that says so, and whether higher is better."""
    metric = next((str(split.summary["monitor"]) for split in splits if "monitor" in split.summary), "")
    return metric, better(splits, metric) == "higher"


def _notes(
    shown: str, metric: str, values: Mapping[str, float], splits: Mapping[str, Split], named: Named, is_higher_better: bool
) -> Iterator[Html]:
    best = (max if is_higher_better else min)(values, key=lambda letter: values[letter])
    others = [letter for letter in values if letter != best]
    for other in others:
        said = f"{shown} {text(values[best])} against {text(values[other])}, "
        if values[best] == values[other]:
            yield note(f"{best} and {other} are equal: {shown} {text(values[best])}.")
        elif len(digests := {named[letter].run.tags.get("dataset.digest", "?") for letter in (best, other)}) > 1:
            found = " and ".join(sorted(digest[:12] for digest in digests))
            yield note(
                f"{best} is ahead of {other}: {said}but on other rows (datasets {found}), so nobody can tell whether that is chance.",
                kind="warning",
            )
        elif (known := difference(metric, splits[best], splits[other], len(others))) is None:
            yield note(
                f"{best} is ahead of {other}: {said}by {text(abs(values[best] - values[other]))}. What was kept of the rows does not tell "
                "whether that is chance."
            )
        else:
            yield _with_interval(best, other, said, known)


def _with_interval(best: str, other: str, said: str, known: Difference) -> Html:
    low, high = (known.low, known.high) if known.value > 0 else (-known.high, -known.low)
    by = f"{said}by {text(abs(known.value))} (95 % interval {text(low)} to {text(high)}, on the same {known.rows:,} rows)"
    if known.is_beyond_chance:
        return note(f"{best} is better than {other}: {by}: beyond chance.", kind="good")
    return note(f"{best} is ahead of {other}, but by no more than chance may give: {by}.")
