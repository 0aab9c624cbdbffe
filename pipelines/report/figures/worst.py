"""The most wrong rows that are pictures."""

from collections.abc import Sequence

import numpy as np

from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.canvas import UndefinedError, drawing, shorten

MOST_PICTURES = 9


def as_picture(values: Sequence[float], shape: Sequence[int]) -> np.ndarray:
    """An image or a spectrogram as float64 of shape (height, width) or (height, width, 3), from 0 to 1: its lowest value is black."""
    pixels = np.array(values, float).reshape(shape)
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3) and pixels.shape[2] not in (1, 3):
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim == 3 and pixels.shape[2] != 3:
        pixels = pixels[..., 0]
    low, high = np.nanmin(pixels), np.nanmax(pixels)
    return np.nan_to_num((pixels - low) / (high - low if high > low else 1.0))


def picture_column(split: SplitEvaluation) -> tuple[str, Sequence[int]]:
    """The column of the table `worst` that holds pictures, and their shape; empty if there is none."""
    for name, shape in split.summary.get("shapes", {}).items():
        if len(shape) in (2, 3) and sorted(shape)[-2] > 1:
            return name, shape
    return "", ()


def worst_pictures(split: SplitEvaluation) -> tuple[bytes, str]:
    name, shape = picture_column(split)
    if not name:
        raise UndefinedError("rows of this dataset are no pictures")
    table = split.tables["worst"]
    count = min(MOST_PICTURES, len(table["row"]))
    if not count:
        raise UndefinedError("the split has no rows")
    with drawing(columns=3, rows=3, inches=(3.7, 3.7)) as canvas:
        for number, axes in enumerate(canvas.axes):
            axes.set_axis_off()
            if number < count:
                axes.imshow(as_picture(table[name][number], shape), cmap="gray", interpolation="nearest")
                true, predicted = (_short(table[column][number]) for column in ("true", "predicted"))
                axes.set_title(f"{table['row'][number]}: {true} → {predicted}", fontsize=7)
    return canvas.svg, f"The {count} rows with the largest loss: row number, true → predicted."


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else shorten(value, 10)
