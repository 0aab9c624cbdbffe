"""Parts of the page of a run, or of several: curves over each other, figures of an evaluation and its most wrong rows, and tables by class
and by slice with 95 % intervals."""

import io
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan
from typing import Any

import numpy as np
from PIL import Image

from pipelines.config.messages.words import verb_for
from pipelines.report.charts import Mark, Points, line_chart
from pipelines.report.evaluation import CONTRIBUTIONS, WORST, WORST_ROWS, SplitEvaluation
from pipelines.report.figures.class_curves import wilson
from pipelines.report.figures.svg_figures import SvgFigure, draw_figures
from pipelines.report.figures.worst import as_picture, picture_column
from pipelines.report.rendering import Figure, Note, PageTable, Picture, readable
from pipelines.tracking.history import History, Point

Columns = Mapping[str, Sequence[Any]]
SplitFigures = Mapping[str, Sequence[SvgFigure]]
"""The figures of each split, by its name."""

_FIRST_CHARTS = ("loss", "train/loss", "validation/loss", "train/rows_per_second", "train/step_seconds", "train/data_wait_fraction")
_WITHOUT_CHART = ("validation/epoch",)
MOST_CHARTS = 40
MOST_SERIES = 7
"""Lines of a chart: as many as there are colours."""
MOST_BYTES = 3_500_000
"""The most that the figures of a page may take."""
MOST_ROWS = 24
"""Of a table of the most wrong rows."""
_FEATURE = "feature."
_CAUSES = "moved by"
_CAUSES_EXPLANATION = (
    "`moved by` are the features that moved the model's output most from its mean, with their SHAP values: of two classes the log-odds of "
    "the second, of several the output of the predicted one"
)
MOST_ENTRIES = 60
"""Of a table; the worst ones of slices."""
INTERVAL = "95 % interval"
_SHARES = {"loss": "mean loss", "positive": "share positive", "predicted_positive": "predicted positive"}
"""Headings of the columns beside the accuracy, by the name of the sum."""
_MEANS = {"absolute": "mean absolute error", "rank": "mean rank", "loss": "mean loss"}
"""Headings where there is no accuracy: the first sum of a slice counts."""


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
    by_name = sorted(charts.keys() - set(_FIRST_CHARTS))
    titles = [*(title for title in _FIRST_CHARTS if title in charts), *by_name]
    return [_chart(title, charts[title], "step", marks) for title in titles[:MOST_CHARTS]]


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


@dataclass(frozen=True)
class SplitPictures:
    """The figures of a split on a page."""

    name: str
    rows: int
    figures: Sequence[Figure]
    reasons: Sequence[str]
    """Why others are not there."""


def split_pictures(splits: Sequence[SplitEvaluation], figures: SplitFigures | None = None) -> list[SplitPictures]:
    """The figures of each split, which are drawn unless they are given."""
    pictures, free_bytes = [], MOST_BYTES
    for split in splits:
        page_figures, reasons = [], []
        for figure in figures[split.name] if figures and split.name in figures else draw_figures(split):
            free_bytes -= len(figure.svg)
            if figure.svg and free_bytes > 0:
                page_figures.append(Figure(Picture(figure.svg, figure.caption, "svg+xml"), figure.caption))
            else:
                reasons.append(f"{figure.caption} It is too large for this page; the run has it." if figure.svg else figure.caption)
        pictures.append(SplitPictures(split.name, split.summary.get("rows", 0), page_figures, reasons))
    return pictures


def figures_by_split(splits_by_run: Mapping[str, Sequence[SplitEvaluation]]) -> dict[str, list[Figure]]:
    """Each figure of several runs beside each other, by split; `splits_by_run` are the evaluations by the runs' letters."""
    by_split, free_bytes = {}, MOST_BYTES
    for name in dict.fromkeys(split.name for splits in splits_by_run.values() for split in splits):
        evaluations = [(letter, split) for letter, splits in splits_by_run.items() for split in splits if split.name == name]
        run_figures = [(letter, figure) for letter, split in evaluations for figure in draw_figures(split)]
        figures: list[Figure] = []
        for figure_name in dict.fromkeys(figure.name for _, figure in run_figures if figure.svg):
            for letter, figure in run_figures:
                if figure.name == figure_name:
                    free_bytes -= len(figure.svg)
                    picture = Picture(figure.svg, f"{letter}: {figure.caption}", "svg+xml")
                    has_room = figure.svg and free_bytes > 0
                    figures.append(Figure(picture if has_room else Note("No room for this figure."), figure.caption, letter))
        if figures:
            by_split[name] = figures
    return by_split


def worst_tables(splits: Sequence[SplitEvaluation], key: Sequence[str] = ()) -> list[PageTable]:
    """The rows with the largest loss: key and number, truth, prediction, and all columns of the query, as they were before they were
    encoded; where they are not kept, the encoded features, as far as encoding is invertible."""
    return [_worst_table(split, key) for split in splits if split.tables.get(WORST, {}).get("row")]


def _worst_table(split: SplitEvaluation, key: Sequence[str]) -> PageTable:
    encoded, raw = split.tables[WORST], split.tables.get(WORST_ROWS, {})
    features = [name for name in encoded if name.startswith(_FEATURE)]
    columns = [name for name in encoded if name not in features]
    if not raw:
        columns += [name for name in features if name not in split.summary.get("shapes", {})]
    picture, shape = picture_column(split)
    keys = [name for name in key if name in raw]
    raw_columns = [name for name in raw if name not in keys]
    causes = _causes(split)
    rows = []
    for place in range(min(MOST_ROWS, len(encoded["row"]))):
        cells: list[object] = []
        if picture:
            buffer = io.BytesIO()
            Image.fromarray((as_picture(encoded[picture][place], shape) * 255).astype(np.uint8)).save(buffer, "PNG")
            cells.append(Picture(buffer.getvalue(), "the row", width=72))
        cells += [str(raw[name][place]) for name in keys]
        cells += [_brief(encoded[name][place]) for name in columns]
        cells += [causes[place]] if causes else []
        rows.append([*cells, *(_brief(raw[name][place]) for name in raw_columns)])
    names = [*([picture] if picture else []), *keys, *columns]
    header = [name.removeprefix(_FEATURE) if name in encoded else name for name in names]
    header += [*([_CAUSES] if causes else []), *raw_columns]
    explanation = _explanation(bool(raw), key, keys) + (f"; {_CAUSES_EXPLANATION}" if causes else "")
    return PageTable(header, rows, f"Most wrong rows of split {split.name}, by loss; {explanation}")


def _causes(split: SplitEvaluation) -> list[str]:
    """For each of the most wrong rows the features that moved the model's output most, with raw value and contribution, if they are
    known."""
    table, raw, encoded = split.tables.get(CONTRIBUTIONS, {}), split.tables.get(WORST_ROWS, {}), split.tables[WORST]
    if not table:
        return []
    by_row: dict[int, list[str]] = {row: [] for row in encoded["row"]}
    places = {row: place for place, row in enumerate(encoded["row"])}
    for row, feature, contribution in zip(table["row"], table["feature"], table["contribution"], strict=True):
        column = raw.get(feature, encoded.get(f"{_FEATURE}{feature}"))
        value = "" if column is None else f" {_value(column[places[row]])}"
        by_row[row].append(f"{feature}{value} ({f'{contribution:+.3g}'.replace('-', '−')})")
    return [", ".join(causes) for causes in by_row.values()]


def _value(value: Any) -> str:
    """A raw value in a few letters; NULL and NaN as `missing`."""
    if value is None or (isinstance(value, float) and isnan(value)):
        return "missing"
    return readable(value) if len(text := str(value)) <= 24 or isinstance(value, float) else f"{text[:23]}…"


def _explanation(is_raw: bool, key: Sequence[str], keys: Sequence[str]) -> str:
    """Says what the columns are, and how to find a row."""
    number = "`row` counts from 0 in the order of the version's row groups"
    if not is_raw:
        return f"features as they were encoded, since no raw rows of the split were kept or can be read; {number}"
    if not keys:
        return number if key else f"{number}, since the dataset has no key"
    return f"{', '.join(keys)} {verb_for(len(keys))} the key; {number}"


def _brief(value: Any) -> object:
    if isinstance(value, bool):
        return str(value).lower()  # as classes and slices are named
    if isinstance(value, list):
        return f"{len(value)} numbers"
    return value if not isinstance(value, str) or len(value) <= 240 else value[:239] + "…"


@dataclass(frozen=True)
class _Slices:
    """The values of one column, with what was measured for each."""

    header: list[str]
    entries: list[list[object]]
    badness: np.ndarray
    """How bad each value is, shape (entries,): more is worse."""
    total: str = ""
    """The measure of all values together, in words."""


def class_tables(splits: Sequence[SplitEvaluation]) -> list[PageTable]:
    """Recall and precision of each class, with 95 % intervals."""
    tables = []
    for split in splits:
        if counts := split.tables.get("classes"):
            columns = [counts[name] for name in ("class", "rows", "predicted", "correct")]
            entries = [class_entry(*values) for values in zip(*columns, strict=True)]
            header = ["class", "rows", "recall", INTERVAL, "predicted", "precision", INTERVAL]
            tables.append(PageTable(header, entries[:MOST_ENTRIES], f"By class, {split.name}{cut_note(entries)}"))
    return tables


def slice_tables(splits: Sequence[SplitEvaluation]) -> list[PageTable]:
    """A table for each column of `task.slices`: values with the largest error first, marked where the interval excludes the mean."""
    tables = []
    for split in splits:
        sums = split.tables.get("slices", {})
        for name in dict.fromkeys(sums.get("column", ())):
            places = [place for place, column in enumerate(sums["column"]) if column == name]
            column_sums = {key: [values[place] for place in places] for key, values in sums.items()}
            slices = _accuracies(column_sums) if "correct" in column_sums else _mean_errors(column_sums)
            worst_first = np.argsort(-np.nan_to_num(slices.badness, nan=np.inf), kind="stable")[:MOST_ENTRIES]
            caption = f"By {name}, {split.name}; {slices.total}the worst value first{cut_note(slices.entries)}"
            tables.append(PageTable(slices.header, [slices.entries[place] for place in worst_first], caption))
    return tables


def class_entry(name: str, rows: int, predicted: int, correct: int, *, unit: str = "row") -> list[object]:
    recall = correct / rows if rows else f"undefined: no {unit}"
    precision = correct / predicted if predicted else "undefined: never predicted"
    return [str(name), rows, recall, _interval(correct, rows), predicted, precision, _interval(correct, predicted)]


def _interval(successes: float, rows: int) -> str:
    low, high = wilson(successes, rows)
    return f"{low:.3f} to {high:.3f}" if rows else "no rows"


def _accuracies(sums: Columns) -> _Slices:
    rows, correct = np.array(sums["rows"]), np.array(sums["correct"], float)
    accuracy, keys = correct.sum() / rows.sum(), [key for key in _SHARES if key in sums]
    entries: list[list[object]] = []
    for place, value in enumerate(sums["value"]):
        low, high = wilson(correct[place], int(rows[place]))
        shares = [float(sums[key][place] / rows[place]) for key in keys]
        mark = _mark(is_worse=high < accuracy, is_better=low > accuracy)
        entries.append([str(value), int(rows[place]), float(correct[place] / rows[place]), f"{low:.3f} to {high:.3f}", *shares, mark])
    header = ["value", "rows", "accuracy", INTERVAL, *(_SHARES[key] for key in keys), ""]
    return _Slices(header, entries, -correct / rows, f"accuracy of all rows {accuracy:.4f}; ")


def _mean_errors(sums: Columns) -> _Slices:
    """Means of an error. Those of quantities have an interval from the standard error."""
    rows = np.array(sums["rows"], float)
    entries: list[list[object]] = [[str(value), int(count)] for value, count in zip(sums["value"], rows, strict=True)]
    header = ["value", "rows"]
    measure = next((key for key in _MEANS if key in sums), "")
    if not measure:  # of a task of one's own, which sums something else
        return _Slices(header, entries, np.zeros(len(rows)))
    means, mean = np.array(sums[measure], float) / rows, float(np.sum(sums[measure]) / rows.sum())
    entries = [[*entry, float(entry_mean)] for entry, entry_mean in zip(entries, means, strict=True)]
    header += [_MEANS[measure]]
    if "squared" in sums and "error" in sums:
        header += [INTERVAL, "mean error", ""]
        with np.errstate(invalid="ignore"):  # of an infinite error; the square of an absolute error is that of the error
            reach = 1.96 * np.sqrt(np.maximum(np.array(sums["squared"], float) / rows - means**2, 0) / rows)
        for entry, low, high, error in zip(entries, means - reach, means + reach, np.array(sums["error"], float) / rows, strict=True):
            entry += [f"{low:.4g} to {high:.4g}", float(error), _mark(is_worse=low > mean, is_better=high < mean)]
    return _Slices(header, entries, means, f"{_MEANS[measure]} of all rows {mean:.4g}; ")


def _mark(is_worse: bool, is_better: bool) -> str:
    return "worse than the whole" if is_worse else "better than the whole" if is_better else ""


def cut_note(entries: Sequence[Any]) -> str:
    """Addition to the caption if not all entries are shown."""
    return f"; {MOST_ENTRIES} of {len(entries):,}, and the others in the run's files" if len(entries) > MOST_ENTRIES else ""
