"""Readable boxes from the output of a detector."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines.applications.detection.peaks import box_columns, find_boxes
from pipelines.serving.export.standalone.answers import answer


@answer("boxes")
def answer_boxes(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Classes, scores and edges of each row's boxes, and how many there are of each class."""
    rows = find_boxes(output, form["stride"], form["size"], form["most"], form["least_score"])
    columns = [box_columns(row, form["classes"], form["size"]) for row in rows]
    return [{name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()} for row in columns]
