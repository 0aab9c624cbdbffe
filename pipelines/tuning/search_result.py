"""The result of a search: its trials, what each reached by epoch, what was saved, and how the winner does with fresh seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from statistics import fmean, stdev
from typing import Any, Literal

from pipelines.config.train.changes import CHANGES, changes_text
from pipelines.runtime.notebook_html import html_summary
from pipelines.tracking.search_files import TrialResult, lineage
from pipelines.tuning.alternatives import AlternativeResult
from pipelines.tuning.combination import CombinedModel
from pipelines.tuning.search import Params, TrialJob

_MOST_LINES = 10
"""Trials in the table on the terminal, the best first."""


@dataclass(frozen=True)
class FreshSeeds:
    """The winner's settings, trained with seeds that the search has not seen, and tested once each."""

    run_ids: tuple[str, ...]
    validation: tuple[float, ...]
    """The metric of each, on the validation split."""
    test: tuple[float, ...]
    """The same on the test split; empty without one."""
    optimism: float | None
    """How much better the search's best score is than the mean of `validation`: it is the best of many."""


@dataclass(frozen=True)
class SearchResult:
    """A search that has ended."""

    run_id: str
    metric: str
    direction: Literal["min", "max"]
    rungs: tuple[int, ...]
    """Epochs of each rung."""
    trials: tuple[TrialResult, ...]
    jobs: tuple[TrialJob, ...]
    """The search's decisions in their order."""
    winner: int
    """Number of the best trial."""
    epochs: int
    """Epochs of all trials together, of which `epochs_trained` were trained by this command."""
    epochs_trained: int
    full_grid: int
    """Epochs if every trial were trained to the end."""
    model: str
    """URI of the winner's model."""
    output: str
    """The winner's config; empty if none was written."""
    fresh: FreshSeeds
    begins_with_config: bool = False
    """Whether trial 1 is the config as it stands."""
    combined: CombinedModel | None = None
    """The average of the best trials' models, if `tune.combine` asks for one."""
    alternatives: tuple[AlternativeResult, ...] = ()
    chosen: int = 0
    """Number of the alternative, counted from 1, that is better than the winner: `model`, `output` and `fresh` are its own. 0 for none."""

    @property
    def best(self) -> TrialResult:
        return next(trial for trial in self.trials if trial.number == self.winner)

    @property
    def best_score(self) -> float | None:
        """Of the winner, or of the alternative that is better."""
        return self.alternatives[self.chosen - 1].score if self.chosen else self.best.score

    @property
    def best_params(self) -> Params:
        """Of the winner; the kind of an alternative that is better."""
        return {"task.kind": self.alternatives[self.chosen - 1].kind} if self.chosen else self.best.params

    @property
    def best_run_id(self) -> str:
        """The training of the winner, or of the alternative that is better."""
        return self.alternatives[self.chosen - 1].run_id if self.chosen else self.best.run_id

    @property
    def best_name(self) -> str:
        """In the words of messages."""
        return f"alternative {self.chosen}, {self.alternatives[self.chosen - 1].kind}" if self.chosen else "winner"

    @property
    def saved_share(self) -> float:
        """Share of the epochs of the full grid that the search did without."""
        return 1 - self.epochs / self.full_grid

    def values(self) -> dict[str, Any]:
        """As JSON values, besides the trials."""
        return {**{name: value for name, value in asdict(self).items() if name not in ("trials", "jobs")}, "saved_share": self.saved_share}

    def _repr_html_(self) -> str:
        table = {name: str(value) for name, value in self.best_params.items()}
        best = self.best_name if self.chosen else f"trial {self.winner} of {len(self.trials)}"
        return html_summary("search", table, (f"{best}: {self.metric} {self.best_score:.4g}",))


def best_value(values: tuple[float | None, ...], direction: str) -> float | None:
    """The best of the values that are numbers; None if there is none."""
    numbers = [value for value in values if value is not None and not isnan(value)]
    return (max(numbers) if direction == "max" else min(numbers)) if numbers else None


def rank_trials(result: SearchResult) -> list[TrialResult]:
    """The trials, those that came furthest first, and of these the best first."""
    sign = -1 if result.direction == "max" else 1
    return sorted(result.trials, key=lambda trial: (trial.score is None, -trial.rung, sign * (trial.score or 0.0), trial.number))


def describe_search(result: SearchResult) -> list[str]:
    """The lines of the text: a table of the best trials, the winner's figures, and what the search has saved."""
    ranked = rank_trials(result)
    rows = [
        (str(trial.number), str(trial.epochs), "failed" if trial.score is None else f"{trial.score:.4g}", _describe_trial(trial))
        for trial in ranked[:_MOST_LINES]
    ]
    header = ("trial", "epochs", result.metric)
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(3)]
    lines = ["  ".join(text.rjust(width) for text, width in zip(header, widths, strict=True)) + "  settings"]
    lines += ["  ".join([*(text.rjust(width) for text, width in zip(row, widths, strict=False)), row[3]]) for row in rows]
    if len(ranked) > _MOST_LINES:
        lines.append(f"and {len(ranked) - _MOST_LINES} more, in trials.json of the run")
    lines.append(
        f"{result.epochs} epochs instead of {result.full_grid}: {result.saved_share:.0%} saved; {result.epochs_trained} were trained now"
    )
    lines += [*describe_lineage(result), *describe_first(result), *describe_alternatives(result)]
    return [*lines, *describe_fresh(result), *describe_combined(result)]


def describe_first(result: SearchResult) -> list[str]:
    """The line that compares the winner with the config as it stands; none if that is no trial."""
    first = result.trials[0] if result.begins_with_config else None
    if first is None or first.score is None or result.best.score is None:
        return []
    if result.winner == first.number:
        return [f"the config as it stands is the winner, with {result.metric} {first.score:.4g}"]
    return [f"the config as it stands, trial 1, has {result.metric} {first.score:.4g}; the winner {result.best.score:.4g}"]


def describe_alternatives(result: SearchResult) -> list[str]:
    """A line on each alternative: whether it is better than the winner."""
    lines = []
    for number, alternative in enumerate(result.alternatives, 1):
        name = f"alternative {number}, {alternative.kind}"
        if alternative.error:
            lines.append(f"{name}, has failed: {alternative.error.partition(chr(10))[0]}")
            continue
        score = "undefined" if alternative.score is None else f"{alternative.score:.4g}"
        verdict = "better than the winner, and the result" if number == result.chosen else "and is not the result"
        lines.append(f"{name}, has {result.metric} {score}, {verdict}")
    return lines


def describe_params(params: Params) -> str:
    """`lr 0.002, hidden [64]; after epoch 2 lr 0.004`: without the names of sections, where these differ."""
    short = {name: name.rpartition(".")[2] for name in params if name != CHANGES}
    is_unique = len(set(short.values())) == len(short)
    first = ", ".join(f"{short[name] if is_unique else name} {params[name]}" for name in short)
    return "; ".join(filter(None, (first, changes_text(params.get(CHANGES, ())))))


def _describe_trial(trial: TrialResult) -> str:
    """The settings of a trial, and which other one it continues."""
    origin = f" (trial {trial.source} until epoch {trial.source_epoch})" if trial.source else ""
    return f"{describe_params(trial.params)}{origin}"


def describe_lineage(result: SearchResult) -> list[str]:
    """The line on the trials that the winner continues; none if it began by itself."""
    first, *descendants = lineage(result.trials, result.winner)
    if not descendants:
        return []
    steps = [f"trial {trial.number} after epoch {trial.source_epoch}" for trial in descendants]
    return [f"the winner began as trial {first.number}, and became {', then '.join(steps)}"]


def describe_fresh(result: SearchResult) -> list[str]:
    """The lines on the winner with fresh seeds; none if it was not trained with any."""
    fresh = result.fresh
    if not fresh.validation:
        return []
    seeds = f"{len(fresh.validation)} fresh seed{'s' if len(fresh.validation) > 1 else ''}"
    parts = [f"validation {result.metric} {describe_values(fresh.validation)}"]
    parts += [f"test {result.metric} {describe_values(fresh.test)}"] if fresh.test else []
    lines = [f"{result.best_name}, with {seeds}: {', '.join(parts)}"]
    if fresh.optimism is not None:
        lines.append(
            f"the search's own best of {result.best_score:.4g} is better than that by {fresh.optimism:.2g}: it is the best of many"
        )
    return lines


def describe_combined(result: SearchResult) -> list[str]:
    """The line on the model that averages others; none without one."""
    combined = result.combined
    if combined is None:
        return []
    values = {"validation": combined.validation, "test": combined.test}
    parts = [f"{split} {result.metric} {value:.4g}" for split, value in values.items() if value is not None]
    return [f"the average of {len(combined.of)} models, chosen by validation: {', '.join(parts)}"]


def describe_values(values: Sequence[float]) -> str:
    return f"{fmean(values):.4g}" + (f" ± {stdev(values):.1g}" if len(values) > 1 else "")


def fresh_seeds(
    metric: str, direction: Literal["min", "max"], score: float | None, results: Sequence[tuple[str, Mapping[str, float]]]
) -> FreshSeeds:
    """The figures of trainings with fresh seeds, given the run and the metrics of each, beside the search's best score."""
    validation = tuple(metrics[f"validation/{metric}"] for _, metrics in results if f"validation/{metric}" in metrics)
    test = tuple(metrics[f"test/{metric}"] for _, metrics in results if f"test/{metric}" in metrics)
    gain = None if score is None or not validation else score - fmean(validation)
    optimism = gain if gain is None or direction == "max" else -gain
    return FreshSeeds(tuple(run_id for run_id, _ in results), validation, test, optimism)
