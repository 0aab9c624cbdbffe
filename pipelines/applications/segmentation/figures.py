"""The worst masks beside their images."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import ListedColormap

from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.canvas import UndefinedError, colour, drawing, shorten
from pipelines.report.page_parts import MOST_ENTRIES, cut_note
from pipelines.report.rendering import PageTable

_NAMES = {"image": "image", "true": "true mask", "predicted": "predicted mask"}
_INCHES = 1.3


def worst_masks(split: SplitEvaluation) -> tuple[bytes, str]:
    """Image, true and predicted mask of each kept row, the least Dice first. The background is white, other classes have a colour each."""
    table, size, classes = split.tables.get("masks"), split.summary.get("picture_size", ()), split.summary.get("classes", ())
    if not table or not table["row"]:
        raise UndefinedError("no mask was predicted")
    colours = ListedColormap(["white", *(colour(number) for number in range(max(len(classes) - 1, 1)))])
    with drawing(columns=3, rows=len(table["row"]), inches=(3.7, _INCHES * len(table["row"]))) as canvas:
        for number, axes in enumerate(canvas.axes):
            row, (name, title) = number // 3, list(_NAMES.items())[number % 3]
            pixels = np.frombuffer(table[name][row], np.uint8).reshape(size)
            style = {"cmap": "gray"} if name == "image" else {"cmap": colours, "vmin": -0.5, "vmax": colours.N - 0.5}
            axes.imshow(pixels, interpolation="none", **style)
            axes.set(xticks=[], yticks=[])
            axes.grid(False)
            axes.set_title(f"row {table['row'][row]}: Dice {table['dice'][row]:.3f}" if name == "image" else title, fontsize=7)
    names = ", ".join(shorten(name) for name in list(classes)[1:])
    return canvas.svg, f"The {len(table['row'])} rows with the least Dice: image, true and predicted mask; coloured are {names}."


def mask_tables(splits: Sequence[SplitEvaluation]) -> list[PageTable]:
    """Dice, intersection over union, recall and precision of each class of pixels."""
    tables = []
    for split in splits:
        if counts := split.tables.get("mask_classes"):
            columns = [counts[name] for name in ("class", "pixels", "predicted", "both", "rows", "dice")]
            entries = [_mask_entry(*values) for values in zip(*columns, strict=True)]
            header = ["class", "rows", "mean Dice of rows", "Dice of all pixels", "IoU", "pixels", "recall", "predicted", "precision"]
            tables.append(PageTable(header, entries[:MOST_ENTRIES], f"By class of pixels, {split.name}{cut_note(entries)}"))
    return tables


def _mask_entry(name: str, pixels: int, predicted: int, both: int, rows: int, dice: float) -> list[object]:
    return [
        str(name),
        rows,
        dice / rows if rows else "undefined: no row",
        2 * both / (pixels + predicted) if pixels + predicted else "undefined: no pixel",
        both / (pixels + predicted - both) if pixels + predicted else "undefined: no pixel",
        pixels,
        both / pixels if pixels else "undefined: no pixel",
        predicted,
        both / predicted if predicted else "undefined: never predicted",
    ]


FIGURES = {"masks": (worst_masks,)}
TABLES = (mask_tables,)
