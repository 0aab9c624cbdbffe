"""Remedies of errors about masks: what raises each, and what it offers instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from remedy_cases import Do, fit_columns

from pipelines.applications.segmentation.settings import MaskSettings, SegmentationSettings
from pipelines.applications.segmentation.task import Segmentation
from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.data import Data

COLUMNS = (
    TensorColumn(name="image", dtype="uint8", shape=(1, 20, 28)),
    TensorColumn(name="mask", dtype="uint8", shape=(20, 28), role="target", cardinality=2),
)


def mask(**settings: Any) -> Callable[[Path], Any]:
    return lambda folder: MaskSettings(**{"shape": (20, 28), "classes": ["a", "b"], **settings})


def task(**settings: Any) -> Callable[[Path], Any]:
    return lambda folder: Segmentation(SegmentationSettings(**{"depth": 2, **settings}), Data(COLUMNS, ("a", "b")))


def fit_mask(content: Any, **settings: Any) -> Callable[[Path], Any]:
    encoder = {"encoder": "mask", "shape": [1, 2], "classes": ["a", "b"], **settings}
    return lambda folder: fit_columns(encoder, a=[content] * 3, picture=[b""] * 3)


CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "give one number for each class": (mask(values=(1,)), (mask(values=(1, 2)),)),
    "classes and values name each class once; remove": (mask(values=(1, 1)), (mask(values=(1, 2)),)),
    "which is for volumes; remove it": (mask(spacing=(1, 1, 1)), (mask(), mask(spacing=(1, 1, 1), shape=(4, 4, 4)))),
    "resize is for images; set spacing": (
        mask(shape=(4, 4, 4), resize=True),
        (mask(shape=(4, 4, 4), spacing=(1, 1, 1)), mask(shape=(4, 4, 4))),
    ),
    "give both two numbers for images": (
        task(patch=[8, 8], tile=[8, 8, 8]),
        (
            task(patch=[8, 8], tile=[8, 8]),
            lambda folder: SegmentationSettings(patch=(8, 8, 8), tile=(8, 8, 8)),
        ),
    ),
    "name each axis once": (task(flips=[1, 1]), (task(flips=[1]),)),
    "both are bytes of files; leave image out": (fit_mask([0, 1], image="picture"), (fit_mask([0, 1]),)),
    "give a patch that fits into it": (task(patch=[8, 32]), (task(patch=[8, 28]),)),
    "name those alone": (task(flips=[0, 2]), (task(flips=[0, 1]),)),
    "pixels to less than one; set it to": (task(depth=5), (task(depth=4),)),
    "axes; give {} numbers": (task(tile=[8, 8, 8]), (task(tile=[8, 8]),)),
}
