"""The pictures and tables of a run's evaluation, as parts of a page."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from pipelines.report.evaluation import Split
from pipelines.report.figures.canvas import UndefinedError
from pipelines.report.figures.curves import wilson
from pipelines.report.figures.drawn import Drawn, drawn
from pipelines.report.figures.worst import as_picture, picture_column
from pipelines.report.page import Html, Part, element, figure, folded, grid, image, note, table

MOST_BYTES = 3_500_000
"""Of the figures of a page."""
MOST_ROWS = 24
MOST_SLICES = 60
MOST_COLUMNS = 12
_FEATURE = "feature."

Table = Mapping[str, Sequence[Any]]
Figures = Mapping[str, Sequence[Drawn]]
"""The figures of each split, by its name."""


def pictures(splits: Sequence[Split], figures: Figures | None = None) -> list[Html]:
    """Figures, and what could not be drawn, of each split. They are drawn unless they are given."""
    parts, left = [], MOST_BYTES
    for split in splits:
        found = figures[split.name] if figures and split.name in figures else drawn(split)
        shown = []
        for one in found:
            left -= len(one.svg)
            if one.svg and left > 0:
                shown.append(figure(image(one.svg, one.caption, "svg+xml"), one.caption))
        missing = [note(one.caption) for one in found if not one.svg]
        rows = split.summary.get("rows", 0)
        parts.append(element("h3", f"{split.name}, {rows:,} rows, with the weights of the best epoch"))
        parts += [grid(shown), *missing] if left > 0 else [note("The figures are too large for this page; the run has them.")]
    return parts


def class_tables(splits: Sequence[Split]) -> list[Html]:
    """For each class how many rows are found (recall) and how many that were said to be are (precision), with 95 % intervals."""
    found = []
    for split in splits:
        if counts := split.tables.get("classes"):
            columns = [counts[name] for name in ("class", "rows", "predicted", "correct")]
            rows = [_class_row(*values) for values in zip(*columns, strict=True)]
            header = ["class", "rows", "found", "95 % interval", "predicted", "of these right", "95 % interval"]
            found.append(table(header, rows[:MOST_SLICES], f"By class, {split.name}"))
    return found


def slice_tables(splits: Sequence[Split]) -> list[Html]:
    """A table for each column of `task.slices`: values with the largest error first, marked where the interval excludes the whole."""
    found = []
    for split in splits:
        slices = split.tables.get("slices", {})
        for name in dict.fromkeys(slices.get("column", ())):
            chosen = [place for place, column in enumerate(slices["column"]) if column == name]
            one = {key: [values[place] for place in chosen] for key, values in slices.items()}
            found.append(_slice_table(split, name, one))
    return found


def worst_tables(splits: Sequence[Split]) -> list[Html]:
    """The rows with the largest loss: number, truth, prediction, and what can be shown of them."""
    found: list[Html] = []
    for split in splits:
        rows = split.tables.get("worst", {})
        if not rows.get("row"):
            continue
        names = [name for name in rows if name not in split.summary.get("shapes", {})][:MOST_COLUMNS]
        picture, shape = _picture(split)
        header = [*([picture.removeprefix(_FEATURE)] if picture else []), *(name.removeprefix(_FEATURE) for name in names)]
        body = []
        for place in range(min(MOST_ROWS, len(rows["row"]))):
            shown: list[Part] = [_png(rows[picture][place], shape)] if picture else []
            body.append([*shown, *(_brief(rows[name][place]) for name in names)])
        said = f"Most wrong rows of split {split.name}, by loss; `row` counts from 0 in the order of the version's row groups"
        found.append(folded(said, table(header, body)) if found else table(header, body, said))
    return found


def _class_row(name: str, rows: int, predicted: int, correct: int) -> list[Part]:
    found, right = (correct / total if total else None for total in (rows, predicted))
    return [str(name), rows, found, _interval(correct, rows), predicted, right, _interval(correct, predicted)]


def _interval(successes: float, rows: int) -> str:
    low, high = wilson(successes, rows)
    return f"{low:.3f} to {high:.3f}" if rows else "no rows"


def _slice_table(split: Split, name: str, one: Table) -> Html:
    rows = np.array(one["rows"], float)
    values = [str(value) for value in one["value"]]
    if "correct" in one:
        return _rate_table(split, name, values, rows, np.array(one["correct"], float), one)
    measure = next(key for key in ("absolute", "rank", "loss") if key in one)
    means = np.array(one[measure], float) / rows
    header: list[Part] = ["value", "rows", f"mean {measure}"]
    body: list[list[Part]] = [[value, int(count), float(mean)] for value, count, mean in zip(values, rows, means, strict=True)]
    if "squared" in one:
        header += ["95 % interval", "mean error"]
        # The standard error of a mean absolute error: its squares are those of the errors themselves.
        spread = np.sqrt(np.maximum(np.array(one["squared"], float) / rows - means**2, 0) / rows)
        for row, mean, error, bias in zip(body, means, spread, np.array(one["error"], float) / rows, strict=True):
            row += [f"{mean - 1.96 * error:.4g} to {mean + 1.96 * error:.4g}", float(bias)]
    order = np.argsort(-means, kind="stable")[:MOST_SLICES]
    return table(header, [body[place] for place in order], f"By {name}, {split.name}; the worst value first")


def _rate_table(split: Split, name: str, values: list[str], rows: np.ndarray, correct: np.ndarray, one: Table) -> Html:
    whole = correct.sum() / rows.sum()
    body = []
    for place in np.argsort(correct / rows, kind="stable")[:MOST_SLICES]:
        low, high = wilson(correct[place], int(rows[place]))
        said = "worse than the whole" if high < whole else "better than the whole" if low > whole else ""
        shares: list[Part] = [float(one[key][place] / rows[place]) for key in ("loss", "positive", "predicted_positive") if key in one]
        body.append([values[place], int(rows[place]), float(correct[place] / rows[place]), f"{low:.3f} to {high:.3f}", *shares, said])
    header = ["value", "rows", "right", "95 % interval", "mean loss"]
    header += ["share positive", "predicted positive"] if "positive" in one else []
    return table([*header, ""], body, f"By {name}, {split.name}; the whole is right in {whole:.4f}; the worst value first")


def _picture(split: Split) -> tuple[str, Sequence[int]]:
    try:
        return picture_column(split)
    except UndefinedError:
        return "", ()


def _png(values: Sequence[float], shape: Sequence[int]) -> Html:
    written = io.BytesIO()
    Image.fromarray((as_picture(values, shape) * 255).astype(np.uint8)).save(written, "PNG")
    return image(written.getvalue(), "the row", width=72)


def _brief(value: Any) -> Part:
    if isinstance(value, list):
        return f"{len(value)} numbers"
    return value if not isinstance(value, str) or len(value) <= 240 else value[:239] + "…"
