"""The worst rows of a detector: images with true and predicted boxes."""

from collections.abc import Sequence

import numpy as np
from matplotlib.patches import Patch, Rectangle

from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.canvas import UndefinedError, colour, drawing, shorten
from pipelines.report.page_parts import INTERVAL, MOST_ENTRIES, class_entry, cut_note
from pipelines.report.rendering import PageTable

_NAMES = {"true": "true boxes", "predicted": "predicted boxes"}
_INCHES = 1.45
_MOST_NAMES = 9
"""Classes that the legend has."""


def worst_boxes(split: SplitEvaluation) -> tuple[bytes, str]:
    """Each kept row twice, the largest loss first: with its true boxes, and with those that are predicted. Each class has a colour."""
    table, size, classes = split.tables.get("boxes"), split.summary.get("picture_size", ()), split.summary.get("classes", ())
    if not table or not table["row"]:
        raise UndefinedError("the split has no rows")
    height, width = split.summary["image_size"]
    with drawing(columns=2, rows=len(table["row"]), inches=(3.7, _INCHES * len(table["row"]))) as canvas:
        for number, axes in enumerate(canvas.axes):
            row, (name, title) = number // 2, list(_NAMES.items())[number % 2]
            pixels = np.frombuffer(table["image"][row], np.uint8).reshape(size)
            axes.imshow(pixels, interpolation="none", extent=(0, width, height, 0))
            axes.set(xticks=[], yticks=[])
            axes.grid(False)
            for class_number, x, y, high_x, high_y in np.frombuffer(table[name][row], np.float32).reshape(-1, 5).tolist():
                edge_colour = colour(int(class_number))
                axes.add_patch(Rectangle((x, y), high_x - x, high_y - y, fill=False, linewidth=0.8, edgecolor=edge_colour))
            axes.set_title(f"row {table['row'][row]}: loss {table['loss'][row]:.3g}" if name == "true" else title, fontsize=7)
        patches = [Patch(edgecolor=colour(number), fill=False, label=shorten(name)) for number, name in enumerate(classes[:_MOST_NAMES])]
        canvas.figure.legend(handles=patches, loc="lower center", ncols=3, fontsize=7)
    return (
        canvas.svg,
        f"The {len(table['row'])} rows with the largest loss: left with their true boxes, right with those that are predicted.",
    )


def box_tables(splits: Sequence[SplitEvaluation]) -> list[PageTable]:
    """Recall and precision of the boxes of each class that are predicted, with 95 % intervals."""
    tables = []
    for split in splits:
        if counts := split.tables.get("box_classes"):
            columns = [counts[name] for name in ("class", "true", "predicted", "right")]
            entries = [class_entry(*values, unit="box") for values in zip(*columns, strict=True)]
            header = ["class", "boxes", "recall", INTERVAL, "predicted", "precision", INTERVAL]
            tables.append(PageTable(header, entries[:MOST_ENTRIES], f"By class of boxes, {split.name}{cut_note(entries)}"))
    return tables


FIGURES = {"boxes": (worst_boxes,)}
TABLES = (box_tables,)
