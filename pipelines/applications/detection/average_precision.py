"""Average precision as COCO measures it (Lin et al. 2014), by faster-coco-eval, from the boxes of all rows of a split."""

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

log = logging.getLogger(__name__)

MISSING = "it needs faster-coco-eval, which is not installed; pip install 'lockstep-pipelines[detection]'"
COUNTED_BOXES = 100
"""Boxes of a row that count, the best ones, as at COCO."""
HALF = (0.5,)
COCO = tuple(np.linspace(0.5, 0.95, 10).tolist())
"""Least intersection over union with a true box, for a box that is right."""


def has_library() -> bool:
    return find_spec("faster_coco_eval") is not None


class BoxPrecision(Metric):
    """The mean over classes, and over least overlaps, of the average precision. A class without a true box does not count."""

    full_state_update = False
    higher_is_better = True
    predicted: list[Tensor]
    """Boxes of all rows, one below the other; a tensor once those of several workers are gathered. `true` and `counts` alike."""
    true: list[Tensor]
    counts: list[Tensor]
    """Predicted and true boxes of each row, shape (rows, 2)."""

    def __init__(self, overlaps: Sequence[float], only_class: int | None = None) -> None:
        super().__init__()
        self._overlaps, self._only_class = tuple(overlaps), only_class
        for name in ("predicted", "true", "counts"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, predicted: Sequence[np.ndarray], true: Sequence[np.ndarray]) -> None:
        """Add rows: boxes of shape (boxes, 6), class first and score last, the best first; and true ones of shape (boxes, 5)."""
        predicted, true = [self._select(row[:COUNTED_BOXES]) for row in predicted], [self._select(row) for row in true]
        counts = np.array([[len(row), len(true_row)] for row, true_row in zip(predicted, true, strict=True)], np.int64)
        for state, rows, width in ((self.predicted, predicted, 6), (self.true, true, 5)):  # true ones have no score
            state.append(torch.from_numpy(np.concatenate([np.zeros((0, width)), *rows])))
        self.counts.append(torch.from_numpy(counts.reshape(-1, 2)))

    def compute(self) -> Tensor:
        if self.missing_reason():
            return torch.tensor(torch.nan, dtype=torch.float64)
        predicted, true = dim_zero_cat(self.predicted).cpu().numpy(), dim_zero_cat(self.true).cpu().numpy()
        counts = dim_zero_cat(self.counts).cpu().numpy()
        rows = [np.repeat(np.arange(len(counts)), counts[:, place]) for place in (0, 1)]
        precision = coco_precision(predicted, rows[0], true, rows[1], self._overlaps)
        return torch.tensor(precision[precision > -1].mean(), dtype=torch.float64)

    def missing_reason(self) -> str:
        if any(len(boxes) for boxes in self.true):
            return ""
        return "no row has a box" if self._only_class is None else "no row has a box of the class"

    def _select(self, boxes: np.ndarray) -> np.ndarray:
        return boxes if self._only_class is None else boxes[boxes[:, 0] == self._only_class]


def coco_precision(
    predicted: np.ndarray, rows: np.ndarray, true: np.ndarray, true_rows: np.ndarray, overlaps: Sequence[float]
) -> np.ndarray:
    """Precision at 101 recalls, shape (overlaps, 101, classes, 1, 1); −1 for a class without a true box."""
    from faster_coco_eval import core  # noqa: PLC0415, only who detects has it installed

    classes = sorted(set(true[:, 0].astype(np.int64).tolist()))
    is_counted = np.isin(predicted[:, 0], classes)
    answers = _entries(predicted[is_counted], rows[is_counted])
    images = list(range(int(max(rows.max(initial=0), true_rows.max(initial=0))) + 1))
    annotations: Any = core.COCO()
    annotations.dataset = {
        "images": [{"id": number} for number in images],
        "categories": [{"id": number} for number in classes],
        # One with the number 0 would be taken for none.
        "annotations": [
            {**entry, "id": number, "area": prod(entry["bbox"][2:]), "iscrowd": 0}
            for number, entry in enumerate(_entries(true, true_rows), 1)
        ],
    }
    annotations.createIndex()
    results = annotations.loadRes(answers) if answers else core.COCO()
    evaluation = core.COCOeval_faster(annotations, results, "bbox", print_function=log.debug)
    evaluation.params.imgIds, evaluation.params.catIds = images, classes
    evaluation.params.iouThrs, evaluation.params.maxDets = np.array(overlaps), [COUNTED_BOXES]
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, np.inf]], ["all"]
    evaluation.evaluate()
    evaluation.accumulate()
    return np.asarray(evaluation.eval["precision"]).reshape(len(overlaps), -1, len(classes), 1, 1)


def _entries(boxes: np.ndarray, rows: np.ndarray) -> list[dict[str, Any]]:
    """Boxes in COCO's form: left, top, width and height; and a score if they have one."""
    sizes = np.concatenate([boxes[:, 1:3], boxes[:, 3:5] - boxes[:, 1:3]], axis=1)
    columns = {
        "image_id": rows.tolist(),
        "category_id": boxes[:, 0].astype(np.int64).tolist(),
        "bbox": sizes.tolist(),
        **({"score": boxes[:, 5].tolist()} if boxes.shape[1] > 5 else {}),
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
