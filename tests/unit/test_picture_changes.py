"""Shifts, mirrors and masks of pictures: functions of the key of a row, within their bounds, and in training alone."""

from typing import Any

import pytest
import torch
from torch import Tensor

from pipelines.config.tasks.task import VisionSettings
from pipelines.data.versions.schema import ROW_KEYS, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.augmentation import change_pictures
from pipelines.tasks.data import Data
from pipelines.tasks.vision import Vision

ROWS, HEIGHT, WIDTH = 400, 9, 12
KEYS = torch.arange(ROWS) * 7_919


def task(shape: tuple[int, ...] = (3, HEIGHT, WIDTH), **settings: Any) -> Vision:
    columns = (
        TensorColumn(name="image", dtype="uint8", shape=shape),
        TensorColumn(name="label", dtype="int64", role="target", cardinality=3),
    )
    return Vision(VisionSettings(kind="vision", **settings), Data(columns, classes=("a", "b", "c")))


def ramps(dtype: torch.dtype = torch.uint8) -> Tensor:
    """Pictures whose every pixel has another value, from 1, equal in all channels."""
    return torch.arange(1, 1 + HEIGHT * WIDTH, dtype=dtype).reshape(1, 1, HEIGHT, WIDTH).expand(ROWS, 3, -1, -1)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_changes_are_functions_of_the_row_s_key(dtype: torch.dtype) -> None:
    settings = VisionSettings(shift_pixels=2, flips=(0, 1), masked_pixels=3)
    pictures = torch.randint(256, (ROWS, 3, HEIGHT, WIDTH)).to(dtype)
    changed = change_pictures(pictures, KEYS, settings)
    assert changed.dtype == dtype and changed.shape == pictures.shape
    order = torch.randperm(ROWS)[:50]
    assert torch.equal(change_pictures(pictures[order], KEYS[order], settings), changed[order])
    assert not torch.equal(change_pictures(pictures, KEYS + 1, settings), changed)
    assert change_pictures(pictures[:0], KEYS[:0], settings).shape == (0, 3, HEIGHT, WIDTH)


def test_a_shift_is_at_most_as_far_as_it_may_be_and_brings_in_black() -> None:
    changed = change_pictures(ramps(), KEYS, VisionSettings(shift_pixels=2))
    middle = changed[:, 0, HEIGHT // 2, WIDTH // 2].long() - 1
    upright, across = middle // WIDTH - HEIGHT // 2, middle % WIDTH - WIDTH // 2
    assert {*upright.tolist()} == {*across.tolist()} == {-2, -1, 0, 1, 2}
    black = (changed[:, 0] == 0).sum((1, 2))
    assert torch.equal(black, HEIGHT * WIDTH - (HEIGHT - upright.abs()) * (WIDTH - across.abs()))
    counts = torch.bincount(upright + 2)
    assert counts.min() > ROWS / 5 / 2, "every shift is about as frequent"


def test_half_of_the_pictures_are_mirrored_along_the_axes_that_are_named() -> None:
    pictures = ramps()
    changed = change_pictures(pictures, KEYS, VisionSettings(flips=(1,)))
    is_mirrored = (changed == pictures.flip(3)).all((1, 2, 3))
    assert torch.equal(is_mirrored, ~(changed == pictures).all((1, 2, 3)))
    assert 0.4 < is_mirrored.double().mean() < 0.6
    both = change_pictures(pictures, KEYS, VisionSettings(flips=(0, 1)))
    corners = {*both[:, 0, 0, 0].tolist()}
    assert corners == {1, WIDTH, 1 + WIDTH * (HEIGHT - 1), HEIGHT * WIDTH}


@pytest.mark.parametrize("side", [2, 5])
def test_a_mask_is_a_square_of_the_mean_colour(side: int) -> None:
    pictures = ramps(torch.float32)
    changed = change_pictures(pictures, KEYS, VisionSettings(masked_pixels=side))
    is_masked = changed != pictures
    mean = float(pictures[0, 0].mean())
    assert changed[is_masked].unique().tolist() == [mean]
    heights, widths = is_masked[:, 0].any(2).sum(1), is_masked[:, 0].any(1).sum(1)
    assert int(heights.max()) == int(widths.max()) == side
    assert torch.equal(is_masked[:, 0].sum((1, 2)), heights * widths), "it is a rectangle, cut at the edges"
    assert is_masked.any(0).all(), "it comes everywhere"


def test_evaluation_is_not_changed_and_training_is() -> None:
    vision = task(shift_pixels=3)
    assert vision.draws
    model = vision.model()
    batch = {"image": ramps()[:5], ROW_KEYS: KEYS[:5]}
    assert not torch.equal(model(batch), model({"image": batch["image"]}))
    model.eval()
    assert torch.equal(model(batch), model({"image": batch["image"]}))
    assert not task().draws


@pytest.mark.parametrize("shape", [(3, HEIGHT, WIDTH), (HEIGHT, WIDTH)])
def test_a_picture_that_could_vanish_is_refused(shape: tuple[int, ...]) -> None:
    assert task(shape, shift_pixels=HEIGHT - 1).model() is not None
    with pytest.raises(
        ConfigError, match=r"task.shift_pixels 0, masked_pixels 9: image has only 12x9 pixels; each setting must be smaller"
    ):
        task(shape, masked_pixels=HEIGHT)
