"""The figures of a run's evaluation and its most wrong rows, as parts of a page."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from pipelines.report.evaluation import WORST, WORST_ROWS, Split
from pipelines.report.figures.canvas import UndefinedError
from pipelines.report.figures.drawn import Drawn, drawn
from pipelines.report.figures.worst import as_picture, picture_column
from pipelines.report.page import Html, Part, element, figure, folded, grid, image, note, table

MOST_BYTES = 3_500_000
"""The most that the figures of a page may take."""
MOST_ROWS = 24
_FEATURE = "feature."

Figures = Mapping[str, Sequence[Drawn]]
"""The figures of each split, by its name."""


def pictures(splits: Sequence[Split], figures: Figures | None = None, weights: str = ", with the weights of the best epoch") -> list[Html]:
    """Figures, and what could not be drawn, of each split. They are drawn unless they are given. `weights` says which model they are of."""
    parts, left = [], MOST_BYTES
    for split in splits:
        parts.append(element("h3", f"{split.name}, {split.summary.get('rows', 0):,} rows{weights}"))
        shown, notes = [], []
        for one in figures[split.name] if figures and split.name in figures else drawn(split):
            left -= len(one.svg)
            if one.svg and left > 0:
                shown.append(figure(image(one.svg, one.caption, "svg+xml"), one.caption))
            else:
                notes.append(note(f"{one.caption} It is too large for this page; the run has it." if one.svg else one.caption))
        parts += [*([grid(shown)] if shown else []), *notes]
    return parts


def figures_beside(splits_by_run: Mapping[str, Sequence[Split]]) -> list[Html]:
    """Each figure of several runs beside each other, by split; `splits_by_run` are the evaluations by the runs' letters."""
    parts, left = [], MOST_BYTES
    for name in dict.fromkeys(split.name for splits in splits_by_run.values() for split in splits):
        found = {letter: drawn(split) for letter, splits in splits_by_run.items() for split in splits if split.name == name}
        shown: list[Html] = []
        for figure_name in dict.fromkeys(one.name for every in found.values() for one in every if one.svg):
            for letter, one in ((letter, one) for letter, every in found.items() for one in every if one.name == figure_name):
                left -= len(one.svg)
                picture = (
                    image(one.svg, f"{letter}: {one.caption}", "svg+xml") if one.svg and left > 0 else note("No room for this figure.")
                )
                shown.append(figure(picture, element("span", element("b", letter), f": {one.caption}")))
        parts += [element("h3", f"{name}, with the weights of each run's best epoch"), grid(shown)] if shown else []
    return parts or [note("No run has figures: their evaluations have not ended, or their tasks have none.")]


def worst_tables(splits: Sequence[Split], key: Sequence[str] = ()) -> list[Html]:
    """The rows with the largest loss: key and number, truth, prediction, and all columns of the query, as they were before they were
    encoded; where they are not kept, the encoded features, as far as encoding is invertible."""
    found: list[Html] = []
    for split in splits:
        rows, raw = split.tables.get(WORST, {}), split.tables.get(WORST_ROWS, {})
        if not rows.get("row"):
            continue
        features = [name for name in rows if name.startswith(_FEATURE)]
        shown = [name for name in rows if name not in features]
        if not raw:
            shown += [name for name in features if name not in split.summary.get("shapes", {})]
        picture, shape = _picture(split)
        keys = [name for name in key if name in raw]
        others = [name for name in raw if name not in keys]
        header = [*([picture.removeprefix(_FEATURE)] if picture else []), *keys, *(name.removeprefix(_FEATURE) for name in shown), *others]
        body = []
        for place in range(min(MOST_ROWS, len(rows["row"]))):
            parts: list[Part] = [_png(rows[picture][place], shape)] if picture else []
            parts += [str(raw[name][place]) for name in keys]
            body.append([*parts, *(_brief(rows[name][place]) for name in shown), *(_brief(raw[name][place]) for name in others)])
        said = f"Most wrong rows of split {split.name}, by loss; {_what(bool(raw), key, keys)}"
        found.append(folded(said, table(header, body)) if found else table(header, body, said))
    return found


def _what(is_raw: bool, key: Sequence[str], keys: Sequence[str]) -> str:
    """What the columns are, and how a row is found."""
    number = "`row` counts from 0 in the order of the version's row groups"
    if not is_raw:
        return f"features as they were encoded, since no raw rows of the split were kept or can be read; {number}"
    if not keys:
        return number if key else f"{number}, since the dataset has no key"
    return f"{', '.join(keys)} {'is' if len(keys) == 1 else 'are'} the key; {number}"


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
    if isinstance(value, bool):
        return str(value).lower()  # as classes and slices are named
    if isinstance(value, list):
        return f"{len(value)} numbers"
    return value if not isinstance(value, str) or len(value) <= 240 else value[:239] + "…"
