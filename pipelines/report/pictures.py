"""The figures of a run's evaluation and its most wrong rows, as parts of a page."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
from PIL import Image

from pipelines.config.messages.counting import verb_for
from pipelines.report.evaluation import CONTRIBUTIONS, WORST, WORST_ROWS, SplitEvaluation
from pipelines.report.figures.canvas import UndefinedError
from pipelines.report.figures.svg_figures import SvgFigure, draw_figures
from pipelines.report.figures.worst import as_picture, picture_column
from pipelines.report.rendering import Figure, Note, PageTable, Picture, readable

MOST_BYTES = 3_500_000
"""The most that the figures of a page may take."""
MOST_ROWS = 24
_FEATURE = "feature."
_CAUSES = "moved by"
_CAUSES_EXPLANATION = (
    "`moved by` are the features that moved the model's output most from its mean, with their SHAP values: of two classes the log-odds of "
    "the second, of several the output of the predicted one"
)

SplitFigures = Mapping[str, Sequence[SvgFigure]]
"""The figures of each split, by its name."""


@dataclass(frozen=True)
class SplitPictures:
    """The figures of a split on a page."""

    name: str
    rows: int
    figures: Sequence[Figure]
    reasons: Sequence[str]
    """Why others are not there."""


def split_pictures(splits: Sequence[SplitEvaluation], figures: SplitFigures | None = None) -> list[SplitPictures]:
    """The figures of each split, which are figure unless they are given."""
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
        drawn_figures = [(letter, figure) for letter, split in evaluations for figure in draw_figures(split)]
        figures: list[Figure] = []
        for figure_name in dict.fromkeys(figure.name for _, figure in drawn_figures if figure.svg):
            for letter, figure in drawn_figures:
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
    picture, shape = _picture_column(split)
    keys = [name for name in key if name in raw]
    raw_columns = [name for name in raw if name not in keys]
    causes = _causes(split)
    rows = []
    for place in range(min(MOST_ROWS, len(encoded["row"]))):
        cells: list[object] = [_png(encoded[picture][place], shape)] if picture else []
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


def _picture_column(split: SplitEvaluation) -> tuple[str, Sequence[int]]:
    try:
        return picture_column(split)
    except UndefinedError:
        return "", ()


def _png(values: Sequence[float], shape: Sequence[int]) -> Picture:
    buffer = io.BytesIO()
    Image.fromarray((as_picture(values, shape) * 255).astype(np.uint8)).save(buffer, "PNG")
    return Picture(buffer.getvalue(), "the row", width=72)


def _brief(value: Any) -> object:
    if isinstance(value, bool):
        return str(value).lower()  # as classes and slices are named
    if isinstance(value, list):
        return f"{len(value)} numbers"
    return value if not isinstance(value, str) or len(value) <= 240 else value[:239] + "…"
