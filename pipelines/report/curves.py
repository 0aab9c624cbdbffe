"""The curves of one run, or of several over each other."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from pipelines.report.charts import Mark, Points, line_chart
from pipelines.report.rendering import Figure
from pipelines.tracking.history import History, Point

_FIRST_CHARTS = ("loss", "train/loss", "validation/loss", "train/rows_per_second", "train/step_seconds", "train/data_wait_fraction")
_WITHOUT_CHART = ("validation/epoch",)
MOST_CHARTS = 40
MOST_SERIES = 7


def training_charts(runs: Mapping[str, History], marks: Sequence[Mark] = ()) -> list[Figure]:
    """A chart for each metric over the steps, with a line for each run; the losses of training and validation are one chart."""
    charts: dict[str, dict[str, Points]] = defaultdict(dict)
    for label, run in runs.items():
        for name, points in run.curves.items():
            if name.startswith(("system/", "test/", "baseline/")) or name.endswith("_worst_rank") or name in _WITHOUT_CHART:
                continue
            title, series = _chart_and_line(name)
            if f"{name}_worst" in run.curves:
                series = series or "mean of workers"
            charts[title][" ".join(filter(None, (label, series)))] = [(point.step, point.value) for point in points]
    titles = sorted(charts, key=_rank)
    return [_chart(title, charts[title], "step", marks) for title in titles[:MOST_CHARTS]]


def _rank(title: str) -> tuple[int, str]:
    """Place of a chart: losses and speed come first, all others by name."""
    return (_FIRST_CHARTS.index(title) if title in _FIRST_CHARTS else len(_FIRST_CHARTS), title)


def system_charts(run: History) -> list[Figure]:
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
    rows = []
    for name, points in run.curves.items():
        if not (name.startswith("time/") and name.endswith("_seconds") and points):
            continue
        worst, steps_by_rank = run.curves.get(f"{name}_worst", ()), Counter[int]()
        for steps, rank in _steps_and_values(run.curves.get(f"{name}_worst_rank", ())):
            steps_by_rank[int(rank)] += steps
        rank, steps = steps_by_rank.most_common(1)[0] if steps_by_rank else (0, 0)
        worker = f"worker {rank}, in {steps / steps_by_rank.total():.0%} of the steps" if steps_by_rank else ""
        rows.append((name.removeprefix("time/").removesuffix("_seconds"), _mean(points), _mean(worst) if worst else None, worker))
    return sorted(rows, key=lambda row: -row[1])


def _steps_and_values(points: Sequence[Point]) -> list[tuple[int, float]]:
    """Each point's value with the number of steps since the point before it, for which it stands; at least one."""
    in_order = sorted(points, key=lambda point: point.step)
    steps = [0, *(point.step for point in in_order)]
    return [(max(1, step - before), point.value) for point, (before, step) in zip(in_order, pairwise(steps), strict=True)]


def _mean(points: Sequence[Point]) -> float:
    pairs = _steps_and_values(points)
    return sum(steps * value for steps, value in pairs) / sum(steps for steps, _ in pairs)


def _chart_and_line(name: str) -> tuple[str, str]:
    """Title of the chart of a metric, and name of its line."""
    if name in ("train/loss", "validation/loss"):
        return "loss", name.split("/", maxsplit=1)[0]
    if name.startswith("time/"):
        phase, _, worst = name.removeprefix("time/").partition("_seconds")
        return ("seconds per step, worst worker" if worst else "seconds per step, by phase"), phase
    if name.endswith("_worst"):
        return name.removesuffix("_worst"), "worst worker"
    group, _, last = name.rpartition("/")
    return (group, last) if "/" in group else (name, "")


def _chart(title: str, series: Mapping[str, Points], x_label: str, marks: Sequence[Mark]) -> Figure:
    first_series = dict(list(series.items())[:MOST_SERIES])
    caption = f"{len(series) - len(first_series)} more are in MLflow" if len(series) > len(first_series) else ""
    return Figure(line_chart(first_series, x_label, title, marks), caption)
