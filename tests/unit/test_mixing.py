"""Blended pictures: shares by the key of a row, labels in the same shares, and equal bits however rows are divided among workers."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from test_effects import values_with
from torch.nn import functional

from pipelines.config import parse
from pipelines.config.tasks.task import VisionSettings
from pipelines.data.loader import shard_range
from pipelines.data.versions.schema import ROW_KEYS, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.augmentation import Mixing, beta_quantiles, neighbours
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.vision import Vision

ROWS, HEIGHT, WIDTH = 96, 9, 12
KEYS = torch.arange(ROWS) * 7_919
ALPHA = 0.4
BLACK_AND_WHITE = (torch.arange(ROWS) % 2).float()[:, None, None, None].expand(ROWS, 2, HEIGHT, WIDTH)
"""Of two neighbours the first is black, 0, and the second white, 1."""


def task(**settings: Any) -> Vision:
    columns = (
        TensorColumn(name="image", dtype="uint8", shape=(2, HEIGHT, WIDTH)),
        TensorColumn(name="label", dtype="int64", role="target", cardinality=3),
    )
    return Vision(VisionSettings.model_validate(settings), Data(columns, classes=("a", "b", "c")))


def batch() -> Batch:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (ROWS, 2, HEIGHT, WIDTH), generator=generator).to(torch.uint8)
    return {"image": images, "label": torch.randint(3, (ROWS,), generator=generator), ROW_KEYS: KEYS}


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.4, 1.0, 3.0, 10.0])
def test_quantiles_are_those_of_the_beta_distribution(alpha: float) -> None:
    np.testing.assert_allclose(beta_quantiles(alpha, 512), stats.beta(alpha, alpha).ppf((np.arange(512) + 0.5) / 512), atol=3e-4)


def test_a_picture_has_as_much_of_its_neighbour_as_its_label() -> None:
    mixed = Mixing(ALPHA).mix(BLACK_AND_WHITE, KEYS)
    shares_kept = Mixing(ALPHA).shares(KEYS)
    white = torch.where(BLACK_AND_WHITE[:, 0, 0, 0] == 1, shares_kept, 1 - shares_kept)
    torch.testing.assert_close(mixed.mean((1, 2, 3)), white)
    assert len(shares_kept.unique()) > ROWS / 4, "the shares differ from row to row"


def test_shares_are_those_of_the_distribution() -> None:
    shares_kept = Mixing(ALPHA).shares(torch.arange(20_000) * 7_919)
    assert stats.kstest(shares_kept.numpy(), stats.beta(ALPHA, ALPHA).cdf).pvalue > 0.01


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("passes", [1, 2, 4])
def test_p5_the_same_rows_are_mixed_for_any_number_of_workers_and_passes(workers: int, passes: int) -> None:
    """12 shards of 8 rows: what one worker mixes in a pass has the same bits as in the passes of several workers, or of each shard."""
    together = Mixing(ALPHA).mix(BLACK_AND_WHITE, KEYS)
    for blocks in ([shard_range(rank, workers, 12) for rank in range(workers)], [shard_range(rank, 12, 12) for rank in range(12)]):
        of_workers = [slice(8 * shards.start, 8 * shards.stop) for shards in blocks]
        parts = [
            Mixing(ALPHA).mix(pictures, keys)
            for rows in of_workers
            for pictures, keys in zip(BLACK_AND_WHITE[rows].tensor_split(passes), KEYS[rows].tensor_split(passes), strict=True)
        ]
        assert torch.equal(torch.cat(parts), together)


def test_a_last_row_without_a_neighbour_stays() -> None:
    assert neighbours(KEYS[:5]).tolist() == [1, 0, 3, 2, 4]
    assert torch.equal(Mixing(ALPHA).mix(BLACK_AND_WHITE[:5], KEYS[:5])[4], BLACK_AND_WHITE[4])


@pytest.mark.parametrize("weights", ["none", (0.5, 1.0, 2.0)])
def test_the_loss_is_that_of_mixed_labels(weights: Any) -> None:
    torch.manual_seed(0)
    vision = task(mixup=ALPHA, class_weights=weights, label_smoothing=0.1)
    model, rows = vision.model(), batch()
    assert vision.draws
    shares_kept, order = Mixing(ALPHA).shares(KEYS), neighbours(KEYS)
    of_class = torch.tensor([1.0, 1.0, 1.0] if weights == "none" else weights)
    shares = functional.one_hot(rows["label"], 3) * of_class[rows["label"]][:, None]
    mixed = shares_kept[:, None] * shares + (1 - shares_kept)[:, None] * shares[order]  # the weight of each class in each row
    smoothed = 0.9 * mixed + 0.1 * mixed.sum(1, keepdim=True) / 3
    expected = -(smoothed * model(rows).log_softmax(1)).sum(), mixed.sum()
    torch.testing.assert_close(vision.loss(model, rows), expected, rtol=1e-4, atol=1e-4)


def test_evaluation_mixes_nothing() -> None:
    model, rows = task(mixup=1.0).model(), batch()
    assert not torch.equal(model(rows), model({"image": rows["image"]}))
    model.eval()
    assert torch.equal(model(rows), model({"image": rows["image"]}))


PICTURES = {
    "dataset.features": {"image": {"encoder": "image", "shape": [1, 8, 8]}},
    "dataset.target": {"digit": "label"},
    "task": {"kind": "vision", "mixup": 0.2},
    "train": {"global_batch": 64, "shards": 8},
}


@pytest.mark.parametrize(
    ("faulty", "message", "remedies"),
    [
        ({"train.remainder": "keep"}, "train.remainder is keep, but the task mixes rows.*; set it to drop", ({"train.remainder": "drop"},)),
        ({"train.global_batch": 40}, "train.global_batch is 40 for 8 shards.*; set it to a multiple of 16, such as 48",
         ({"train.global_batch": 48}, {"task.mixup": None})),
        ({"train.grad_accum_steps": 8}, "global_batch is 64 .* grad_accum_steps 8, .* multiple of 128, such as 128",
         ({"train.global_batch": 128},)),
    ],
)  # fmt: skip
def test_what_would_part_pairs_is_refused(faulty: dict[str, Any], message: str, remedies: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(values_with({**PICTURES, **faulty}), "x.yaml")
    for remedy in remedies:
        assert parse(values_with({**PICTURES, **faulty, **remedy}), "x.yaml")
