"""The curves of one run, or of several over each other."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from pipelines.report.charts import Mark, Points, lines
from pipelines.report.page import Html, figure
from pipelines.tracking.history import History, Point

_FIRST = ("loss", "train/loss", "validation/loss", "train/rows_per_second", "train/step_seconds", "train/data_wait_fraction")
_LEFT_OUT = ("validation/epoch",)
MOST_CHARTS = 40
MOST_SERIES = 7


def training_charts(runs: Mapping[str, History], marks: Sequence[Mark] = ()) -> list[Html]:
    """A chart for each metric over the steps, with a line for each run; the losses of training and validation are one chart."""
    charts: dict[str, dict[str, Points]] = defaultdict(dict)
    for label, run in runs.items():
        for name, points in run.curves.items():
            if name.startswith(("system/", "test/", "baseline/")) or name.endswith("_worst_rank") or name in _LEFT_OUT:
                continue
            title, series = _place(name)
            charts[title][" ".join(filter(None, (label, series)))] = [(point.step, point.value) for point in points]
    ordered = sorted(charts, key=_turn)
    return [_chart(title, charts[title], "step", marks) for title in ordered[:MOST_CHARTS]]


def _turn(title: str) -> tuple[int, str]:
    """What is looked at first comes first: losses, speed, all else by name."""
    return (_FIRST.index(title) if title in _FIRST else len(_FIRST), title)


def system_charts(run: History) -> list[Html]:
    """A chart for each measure of the nodes, over minutes since the start, with a line for each node."""
    charts: dict[str, dict[str, Points]] = defaultdict(dict)
    for name, points in run.curves.items():
        if name.startswith("system/"):
            node, _, measure = name.removeprefix("system/").rpartition("/")
            in_time = sorted(points, key=lambda point: point.seconds)
            charts[measure][node or "node"] = [((point.seconds - run.started) / 60, point.value) for point in in_time]
    return [_chart(title, charts[title], "minutes", ()) for title in sorted(charts)[:MOST_CHARTS]]


def phases(run: History) -> list[tuple[str, float, float | None, str]]:
    """For each phase of a step: its mean seconds over all steps, those of the worst worker, and which worker that was in most steps."""
    found = []
    for name, points in run.curves.items():
        if not (name.startswith("time/") and name.endswith("_seconds") and points):
            continue
        worst, steps_by_rank = run.curves.get(f"{name}_worst", ()), Counter[int]()
        for steps, rank in _weighted(run.curves.get(f"{name}_worst_rank", ())):
            steps_by_rank[int(rank)] += steps
        rank, steps = steps_by_rank.most_common(1)[0] if steps_by_rank else (0, 0)
        who = f"worker {rank}, in {steps / steps_by_rank.total():.0%} of the steps" if steps_by_rank else ""
        found.append((name.removeprefix("time/").removesuffix("_seconds"), _mean(points), _mean(worst) if worst else None, who))
    return sorted(found, key=lambda one: -one[1])


def _weighted(points: Sequence[Point]) -> list[tuple[int, float]]:
    """Each point's value with the number of steps since the point before it, for which it stands; at least one."""
    ordered = sorted(points, key=lambda point: point.step)
    return [(max(1, point.step - before), point.value) for before, point in zip([0, *(one.step for one in ordered)], ordered, strict=False)]


def _mean(points: Sequence[Point]) -> float:
    weighted = _weighted(points)
    return sum(steps * value for steps, value in weighted) / sum(steps for steps, _ in weighted)


def _place(name: str) -> tuple[str, str]:
    """Title of the chart of a metric, and name of its line."""
    if name in ("train/loss", "validation/loss"):
        return "loss", name.split("/", maxsplit=1)[0]
    if name.startswith("time/"):
        phase, _, worst = name.removeprefix("time/").partition("_seconds")
        return ("seconds per step, worst worker" if worst else "seconds per step, by phase"), phase
    if name.endswith("_worst"):
        return name.removesuffix("_worst"), "worst"
    group, _, last = name.rpartition("/")
    return (group, last) if "/" in group else (name, "")


def _chart(title: str, series: Mapping[str, Points], x_label: str, marks: Sequence[Mark]) -> Html:
    shown = dict(list(series.items())[:MOST_SERIES])
    more = f"{len(series) - len(shown)} more are in MLflow" if len(series) > len(shown) else ""
    return figure(lines(shown, x_label, title, marks), more)
