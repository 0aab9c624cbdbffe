"""Figures of a search of settings: the settings of each trial and its score, curves by epoch, and how much each setting decides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, log10
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.ticker import FixedLocator, NullLocator

from pipelines.config.tuning import Dimension
from pipelines.report.charts import BLUE, GREY, INK, LINE, RED, SKY, tick_label
from pipelines.report.figures.canvas import UndefinedError, drawing, shorten
from pipelines.tracking.search_files import SearchFiles, TrialResult

WIDE = (8.6, 3.6)
"""Inches of a figure as wide as the page."""
_MOST_TICKS = 6
"""Whole numbers that each have a tick."""
_REACH = 3.0
"""How many times as far as the median trial from the best one an axis of scores reaches: a diverged trial would flatten the others."""
_WINNER, _CONFIG = {"color": RED, "linewidth": 2.4}, {"color": INK, "linewidth": 1.6, "linestyle": (0, (4, 2))}


@dataclass(frozen=True)
class ParallelAxis:
    """A vertical axis on which each trial has a place from 0, the bottom, to 1."""

    title: str
    place: Callable[[Any], float]
    ticks: Sequence[tuple[float, str]]
    """Places with their labels."""


def setting_axis(name: str, dimension: Dimension) -> ParallelAxis:
    """The axis of a setting, by the values that it may take."""
    title = name.partition(".")[2] or name
    if dimension.choice is not None:
        choices, last = list(dimension.choice), max(len(dimension.choice) - 1, 1)
        ticks = [(place / last, _label(value)) for place, value in enumerate(choices)]
        return ParallelAxis(title, lambda value: choices.index(value) / last, ticks)
    low, high = dimension.bounds or (0.0, 1.0)
    is_log, is_whole = dimension.log is not None, dimension.integers is not None
    if is_whole and high - low < _MOST_TICKS:
        marks: list[float] = [*range(int(low), int(high) + 1)]
    else:
        middle = (low * high) ** 0.5 if is_log else (low + high) / 2
        marks = [low, round(middle) if is_whole else float(f"{middle:.2g}"), high]

    def place(value: Any) -> float:
        return log10(value / low) / log10(high / low) if is_log else (value - low) / (high - low)

    return ParallelAxis(title, place, [(place(mark), _label(mark)) for mark in marks])


def score_range(scores: Sequence[float], direction: str) -> tuple[float, float]:
    """The scores at the bottom and at the top of an axis, which is the best one. Those far worse than the median are below it."""
    best, worst = (max(scores), min(scores)) if direction == "max" else (min(scores), max(scores))
    limit = best + _REACH * (float(np.median(scores)) - best)
    if limit == best:
        return worst, best
    return max(worst, limit) if direction == "max" else min(worst, limit), best


def score_axis(name: str, scores: Sequence[float], direction: str) -> ParallelAxis:
    """The axis of scores, the best one at the top."""
    bottom, best = score_range(scores, direction)
    if bottom == best:
        return ParallelAxis(name, lambda value: 1.0, [(1.0, _label(best))])
    span = best - bottom
    ticks = [(share, _label(float(f"{bottom + share * span:.4g}"))) for share in (0.0, 0.5, 1.0)]
    return ParallelAxis(name, lambda value: min(max((value - bottom) / span, 0.0), 1.0), ticks)


def parallel_coordinates(files: SearchFiles) -> tuple[bytes, str]:
    """A line for each trial, across its settings to its score. Raises UndefinedError without a score."""
    trials = _trials_with_score(files)
    space = _space(files)
    axes = [setting_axis(name, dimension) for name, dimension in space.items()]
    scores, metric, direction = [_score(trial) for trial in trials], str(files.search["metric"]), str(files.search["direction"])
    axes.append(score_axis(metric, scores, direction))
    by_badness = sorted(trials, key=lambda trial: _score(trial) * (1 if direction == "max" else -1))
    with drawing(inches=WIDE) as canvas:
        canvas.margin = 0.09
        plot = canvas.axes[0]
        for number, trial in enumerate(by_badness):
            values = [*(trial.params[name] for name in space), trial.score]
            places = [axis.place(value) for axis, value in zip(axes, values, strict=True)]
            plot.plot(range(len(axes)), places, **_style(files, trial, _blend((number + 1) / len(trials))))
        _draw_axes(plot, axes)
    count = len(files.trials) - len(trials)
    failed = f" {count} of {len(files.trials)} trials failed, and {'has' if count == 1 else 'have'} no line." if count else ""
    return canvas.svg, (
        f"A line for each trial, from its settings to its best {metric}, the bluer the better. {_key(files)} One that was stopped early "
        f"has the score of fewer epochs. The best score is at the top, and those far worse than the median are at the bottom.{failed}"
        f"{' Settings that changed are drawn as they were at first.' if _has_lineage(files) else ''}"
    )


def trial_curves(files: SearchFiles) -> tuple[bytes, str]:
    """The metric of each trial by epoch, until it was stopped. Raises UndefinedError without a score."""
    trials, rungs = _trials_with_score(files), [int(epochs) for epochs in files.search["rungs"]]
    metric, direction = str(files.search["metric"]), str(files.search["direction"])
    with drawing(inches=WIDE) as canvas:
        canvas.margin = 0.09
        plot = canvas.axes[0]
        for trial in sorted(trials, key=lambda trial: trial.rung):
            values = [np.nan if value is None else value for value in trial.values]
            style, begin = _style(files, trial, _blend(trial.rung / max(len(rungs) - 1, 1))), max(trial.source_epoch, 1)
            plot.plot(range(begin, len(values) + 1), values[begin - 1 :], **style)
            if values:
                plot.plot([len(values)], [values[-1]], "o", color=style["color"], markersize=3.2, zorder=style["zorder"])
        for epochs in rungs:
            plot.axvline(epochs, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
        _limit_scores(plot, trials, rungs[0], direction)
        if rungs[-1] > 8:
            plot.set_xscale("log")
        plot.xaxis.set_major_locator(FixedLocator(rungs))
        plot.xaxis.set_minor_locator(NullLocator())
        plot.set_xticklabels([f"{epochs:,}" for epochs in rungs])
        plot.grid(axis="x", visible=False)
        plot.set(xlabel="epochs", ylabel=f"validation {shorten(metric, 20)}")
    counts = [sum(trial.rung == rung for trial in files.trials) for rung in range(len(rungs))]
    text = ", ".join(f"{count} after {epochs}" for count, epochs in zip(counts[:-1], rungs[:-1], strict=True))
    stopped = f" Trials were stopped at the dotted lines: {text} epochs; {counts[-1]} went to the end." if text else ""
    stopped += " A trial that continues another one begins on its curve." if _has_lineage(files) else ""
    return canvas.svg, f"{metric[:1].upper()}{metric[1:]} on validation after each epoch, the bluer the further. {_key(files)}{stopped}"


def importance_bars(files: SearchFiles) -> tuple[bytes, str]:
    """How much each setting decides. Raises UndefinedError if that is not known."""
    importance = files.search.get("importance")
    if not importance:
        raise UndefinedError("too few trials have a score, or all have the same")
    settings: Mapping[str, Sequence[float]] = importance["settings"]
    names = [shorten(name.partition(".")[2] or name, 24) for name in settings]
    means, deviations = (np.array([values[place] for values in settings.values()]) for place in (0, 1))
    with drawing(inches=(4.6, 1.0 + 0.3 * len(names))) as canvas:
        canvas.margin = 0.34
        plot = canvas.axes[0]
        plot.barh(range(len(names)), means, 0.55, xerr=deviations, color=SKY, error_kw={"ecolor": GREY, "elinewidth": 1})
        plot.set(yticks=range(len(names)), yticklabels=names, xlabel="fall of R² when shuffled")
        plot.invert_yaxis()
        plot.grid(axis="y", visible=False)
    explained = float(importance["explained"])
    doubt = "" if explained > 0 else " It predicts none that it has not seen, so that this says nothing."
    return canvas.svg, (
        f"How much less of the trials' ranks after {importance['epochs']} {'epoch' if importance['epochs'] == 1 else 'epochs'} a random "
        f"forest of {importance['trials']} trials explains when the values of a setting are shuffled among them; mean and standard "
        f"deviation of 30 times. Of trials that a tree has not seen, the forest explains R² {explained:.2f}.{doubt}"
    )


def _has_lineage(files: SearchFiles) -> bool:
    """Whether trials continue others with changes."""
    return any(trial.source for trial in files.trials)


def _space(files: SearchFiles) -> dict[str, Dimension]:
    return {name: Dimension(**values) for name, values in files.config.get("tune", {}).get("space", {}).items()}


def _trials_with_score(files: SearchFiles) -> list[TrialResult]:
    """The trials that have a score."""
    trials = [trial for trial in files.trials if trial.score is not None and not isnan(trial.score)]
    if not trials:
        raise UndefinedError("no trial has a score")
    return trials


def _score(trial: TrialResult) -> float:
    assert trial.score is not None, "a trial that is drawn has a score"
    return trial.score


def _style(files: SearchFiles, trial: TrialResult, colour: Any) -> dict[str, Any]:
    if trial.number == files.search["winner"]:
        return {**_WINNER, "zorder": 4}
    if trial.number == 1 and files.search.get("begins_with_config"):
        return {**_CONFIG, "zorder": 3}
    return {"color": colour, "linewidth": 1.0, "zorder": 2}


def _key(files: SearchFiles) -> str:
    if not files.search.get("begins_with_config"):
        return "The winner is red."
    return (
        "The winner, which is the config as it stood, is red." if files.search["winner"] == 1 else "The winner is red, the config dashed."
    )


def _blend(share: float) -> tuple[float, ...]:
    """From the colour of faint lines to blue."""
    return tuple((1 - share) * pale + share * blue for pale, blue in zip(to_rgb(LINE), to_rgb(BLUE), strict=True))


def _draw_axes(plot: Axes, axes: Sequence[ParallelAxis]) -> None:
    """The vertical axes, each with its labels to the left, and its name above."""
    for number, axis in enumerate(axes):
        plot.axvline(number, color=GREY, linewidth=0.9, zorder=1)
        for place, label in axis.ticks:
            plot.text(number - 0.03, place, label, ha="right", va="center", fontsize=8, zorder=5, bbox=_HALO)
    plot.set(xlim=(-0.35, len(axes) - 0.9), ylim=(-0.06, 1.06), yticks=[], xticks=range(len(axes)))
    plot.set_xticklabels([shorten(axis.title, 18) for axis in axes])
    plot.tick_params(length=0)
    plot.grid(visible=False)
    for side in ("left", "bottom"):
        plot.spines[side].set_visible(False)


_HALO: Any = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
"""Behind a label, which lines cross."""


def _limit_scores(plot: Axes, trials: Sequence[TrialResult], epochs: int, direction: str) -> None:
    """Leave out what is far worse than the median after so many epochs, as after a rate that is too high."""
    curves = [[value for value in trial.values if value is not None and not isnan(value)] for trial in trials]
    best = score_range([value for values in curves for value in values], direction)[1]
    early = [value for trial in trials for value in trial.values[:epochs] if value is not None and not isnan(value)]
    low, high = sorted((score_range(early, direction)[0] if early else best, best))
    margin = 0.04 * (high - low) or 0.1
    plot.set_ylim(low - margin, high + margin)


def _label(value: Any) -> str:
    """A value of a setting in a few letters."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = str(value).replace(" ", "") if isinstance(value, list | tuple) else str(value)
        return shorten(text, 14)
    return tick_label(value) if value == 0 or abs(value) >= 1e-3 else f"{value:.3g}".replace("-", "−")
