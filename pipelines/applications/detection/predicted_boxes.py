"""Boxes from the output of a detector: peaks of the heat of each class.

Exported folders have this code too, so it imports NumPy alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

NO_BOX = -1
"""Class of the boxes that pad a row."""
_OVERLAP = 0.6
"""Intersection over union from which two boxes of a class are of one object."""
LIMITS = (-5.0, 9.0)
"""Of the logarithm of a distance."""


def find_boxes(output: np.ndarray, stride: int, size: Sequence[int], most: int, least_score: float) -> list[np.ndarray]:
    """The boxes of each row, float64 of shape (boxes, 6): class, left, top, right, bottom in pixels, and score; the best first.

    `output` has shape (rows, classes + 4, height, width): logits of heat, and logarithms of the distances from a cell's middle to the
    left, top, right and bottom edge. `size` is the height and width of the images in pixels, at which boxes are cut off. A peak is a cell
    that no neighbour exceeds (Zhou et al. 2019). Of boxes of a class that overlap by more than 0.6 the best one counts.
    """
    return [_row_boxes(row.astype(np.float64), stride, size, most, least_score) for row in output]


def _row_boxes(maps: np.ndarray, stride: int, size: Sequence[int], most: int, least_score: float) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # no number is no peak
        heat = np.exp(-np.logaddexp(0, -maps[:-4]))
    height, width = heat.shape[1:]
    padded = np.pad(heat, ((0, 0), (1, 1), (1, 1)), constant_values=-1.0)
    around = np.max([padded[:, y : y + height, x : x + width] for y in range(3) for x in range(3)], axis=0)
    number, y, x = np.nonzero((heat == around) & (heat >= least_score))
    scores = heat[number, y, x]
    best = np.argsort(-scores, kind="stable")[: 4 * most]
    number, y, x, scores = number[best], y[best], x[best], scores[best]
    distances = np.exp(np.clip(maps[-4:, y, x], *LIMITS))
    middles = np.stack([x, y]) * stride + stride / 2
    limits = np.array(size)[::-1, None]
    low, high = np.clip(middles - distances[:2], 0, limits), np.clip(middles + distances[2:], 0, limits)
    boxes = np.stack([number, *low, *high, scores], axis=1)
    # A box, the best first, is left out if it overlaps a better one of its class that is not left out.
    rivals = (pairwise_iou(boxes[:, 1:5], boxes[:, 1:5]) > _OVERLAP) & (boxes[:, None, 0] == boxes[None, :, 0])
    is_distinct = np.ones(len(boxes), bool)
    for place in range(len(boxes)):
        if is_distinct[place]:
            is_distinct[place + 1 :] &= ~rivals[place, place + 1 :]
    return boxes[np.flatnonzero(is_distinct)[:most]]


def box_columns(boxes: np.ndarray, classes: Sequence[str], size: Sequence[int]) -> dict[str, Any]:
    """The boxes of a row as columns of predictions: `classes` by name, `scores`, and `left`, `top`, `right` and `bottom` as shares of width
    and height, each an array with a value for each box; and `count_…`, how many of each class, floats, as refused rows have none."""
    height, width = size
    edges = boxes[:, 1:5] / [width, height, width, height]
    return {
        "classes": np.array([classes[number] for number in boxes[:, 0].astype(np.int64).tolist()], np.str_),
        "scores": boxes[:, 5],
        **dict(zip(("left", "top", "right", "bottom"), edges.T, strict=True)),
        **{f"count_{name}": float((boxes[:, 0] == number).sum()) for number, name in enumerate(classes)},
    }


def answer_boxes(output: np.ndarray, form: Mapping[str, Any], decode: Callable[[np.ndarray], np.ndarray]) -> dict[str, Sequence[Any]]:
    """The `box_columns` of all rows, by column."""
    rows = find_boxes(output, form["stride"], form["size"], form["most"], form["least_score"])
    columns = [box_columns(row, form["classes"], form["size"]) for row in rows]
    names = columns[0] if columns else box_columns(np.zeros((0, 6)), form["classes"], form["size"])
    return {name: [row[name] for row in columns] for name in names}


def pairwise_iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes of shape (n, 4) and (m, 4), shape (n, m)."""
    low, high = np.maximum(first[:, None, :2], second[None, :, :2]), np.minimum(first[:, None, 2:], second[None, :, 2:])
    both = np.prod(np.clip(high - low, 0, None), axis=2)
    areas, second_areas = np.prod(first[:, 2:] - first[:, :2], axis=1), np.prod(second[:, 2:] - second[:, :2], axis=1)
    return both / np.maximum(areas[:, None] + second_areas[None, :] - both, 1e-12)
