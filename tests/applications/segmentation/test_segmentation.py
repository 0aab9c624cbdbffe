"""The task `segmentation`: its network, its loss row by row, what it draws, and its metrics."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics.classification import MulticlassConfusionMatrix, MulticlassJaccardIndex
from torchmetrics.segmentation import DiceScore

from pipelines.applications.segmentation.mask_details import PixelShares
from pipelines.applications.segmentation.network import OverPixels, UNet, tile_starts, tile_weights
from pipelines.applications.segmentation.pixel_metrics import dice, foreground_dice, iou, row_confusions
from pipelines.applications.segmentation.settings import SegmentationSettings
from pipelines.applications.segmentation.task import Patches, Segmentation, change_curve
from pipelines.config.load import parse
from pipelines.data.loader.order import row_keys
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import ROW_KEYS, ROW_NUMBERS, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.answers import find_answer
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.bind import check_task
from pipelines.tasks.metrics.table import metric_values

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = {2: (20, 28), 3: (12, 9, 8)}


def make_task(dimensions: int = 2, classes: int = 3, columns: tuple[TensorColumn, ...] = (), **settings: Any) -> Segmentation:
    size = SIZES[dimensions]
    dtype = "uint8" if dimensions == 2 else "float16"
    usual = (
        TensorColumn(name="image", dtype=dtype, shape=(1, *size)),  # type: ignore[arg-type]
        TensorColumn(name="mask", dtype="uint8", shape=size, role="target", cardinality=classes),
    )
    names = ("background", "a", "b")[:classes]
    return Segmentation(SegmentationSettings(**{"width": 4, "depth": 2, **settings}), Data(columns or usual, names))


def make_batch(task: Segmentation, rows: int) -> Batch:
    """Masks that follow from the brightness, so that they can be learnt."""
    generator = torch.Generator().manual_seed(3)
    pixels = torch.rand((rows, 1, *task.size), generator=generator)
    masks = (pixels[:, 0] * len(task.classes)).to(torch.uint8)
    images = (pixels * 255).to(torch.uint8) if task.image.dtype == "uint8" else pixels.half()
    stride, start = row_keys(5, 1)
    keys = {ROW_KEYS: torch.arange(rows) * stride + start} if task.draws else {}
    return {"image": images, "mask": masks, **keys}


ALL = {"flips": [0, 1], "elastic": 2.0, "jitter": 0.4, "patches_per_row": 2}
PARTS = {2: [16, 12], 3: [8, 8, 6]}


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_the_output_has_a_logit_for_each_class_of_each_pixel(dimensions: int, rows: int) -> None:
    task = make_task(dimensions)
    output = task.model().eval()(make_batch(task, rows))
    assert output.shape == (rows, 3, *SIZES[dimensions])
    predicted = task.predict(output)
    assert np.array(predicted["prediction"]).shape == ((rows, *SIZES[dimensions]) if rows else (0,))
    assert all(len(values) == rows for values in predicted.values())


def test_the_shares_of_the_classes_are_those_of_the_mask() -> None:
    output = torch.zeros(1, 3, 2, 2)
    output[0, 1, 0] = 1
    output[0, 2, 1, 1] = 2
    assert make_task().predict(output) == {
        "prediction": [[[1, 1], [0, 2]]],
        "share_background": [0.25],
        "share_a": [0.5],
        "share_b": [0.25],
    }


@pytest.mark.parametrize("dimensions", [2, 3])
def test_some_steps_lower_the_loss(dimensions: int) -> None:
    torch.manual_seed(0)
    task = make_task(dimensions, depth=1, patch=PARTS[dimensions], flips=[0], patches_per_row=2)
    batch, model = make_batch(task, 4), task.model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        total, weight = task.loss(model, batch)
        (total / weight).backward()
        optimizer.step()
        losses.append(float((total / weight).detach()))
    assert losses[-1] < 0.75 * losses[0]


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("class_weights", ["none", (0.5, 1.0, 4.0)])
def test_the_loss_of_a_row_does_not_depend_on_other_rows(dimensions: int, class_weights: Any) -> None:
    torch.manual_seed(1)
    task = make_task(dimensions, patch=PARTS[dimensions], class_weights=class_weights, **ALL)
    batch, model = make_batch(task, 6), task.model()
    loss_of_batch, weight = task.loss(model, batch)
    parts = [task.loss(model, {name: values[rows] for name, values in batch.items()}) for rows in (slice(0, 1), slice(1, 1), slice(1, 6))]
    torch.testing.assert_close(sum(total for total, _ in parts), loss_of_batch)
    assert float(weight) == sum(float(part) for _, part in parts) == 6


def test_balanced_weights_of_pixels_are_the_inverse_of_shares_and_leave_dice_alone() -> None:
    counts = (60, 30, 10)
    data = make_task().data
    weights = [100 / (3 * count) for count in counts]
    random = torch.Generator().manual_seed(2)
    logits, masks = torch.randn(2, 3, 4, 5, generator=random), torch.randint(0, 3, (2, 4, 5), generator=random)
    for share in (0.0, 1.0):
        balanced, explicit = (
            Segmentation(SegmentationSettings(depth=2, dice=share, class_weights=choice), replace(data, class_counts=counts))
            for choice in ("balanced", tuple(weights))
        )
        torch.testing.assert_close(balanced.row_losses(logits, masks), explicit.row_losses(logits, masks))
    without_weights = make_task(dice=1.0).row_losses(logits, masks) - make_task(dice=0.0).row_losses(logits, masks)
    torch.testing.assert_close(
        make_task(dice=1.0, class_weights=tuple(weights)).row_losses(logits, masks)
        - make_task(dice=0.0, class_weights=tuple(weights)).row_losses(logits, masks),
        without_weights,
    )


def test_balanced_weights_of_masks_are_valid_before_any_row_is_read() -> None:
    encoders = {"features": {"image": {"encoder": "image", "shape": [1, 32, 32]}}}
    mask = {"target": {"label": {"encoder": "mask", "shape": [32, 32], "classes": ["a", "b"]}}}
    task = {"kind": "segmentation", "class_weights": "balanced", "depth": 2}
    source = {"tables": {"files": {"format": "parquet", "path": "files"}}}
    check_task(parse({"name": "scans", "source": source, "dataset": {"path": "data", **encoders, **mask}, "task": task}, "scans.yaml"))


def test_the_loss_is_cross_entropy_plus_dice_of_all_but_the_background() -> None:
    task = make_task(dice=0.5, class_weights=(1.0, 2.0, 3.0))
    random = np.random.default_rng(0)
    logits, masks = random.normal(size=(2, 3, 4, 5)), random.integers(0, 3, (2, 4, 5))
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = []
    for row in range(2):
        is_class = np.stack([masks[row] == number for number in range(3)])
        cross_entropy = -(np.array([1, 2, 3])[:, None, None] * is_class * np.log(shares[row])).sum(0).mean()
        overlap = [
            (2 * (shares[row, number] * is_class[number]).sum() + 1) / (shares[row, number].sum() + is_class[number].sum() + 1)
            for number in (1, 2)
        ]
        expected.append(cross_entropy + 0.5 * (1 - np.mean(overlap)))
    losses = task.row_losses(torch.from_numpy(logits), torch.from_numpy(masks))
    assert losses.numpy() == pytest.approx(expected, rel=1e-6)


def test_a_row_weight_multiplies_its_loss() -> None:
    weight = TensorColumn(name="weight", dtype="float32", role="carried")
    task = make_task(sample_weight=weight.name)
    batch, model = make_batch(task, 2), task.model()
    first, second = (
        task.loss(model, {**{name: values[[row]] for name, values in batch.items()}, "weight": torch.ones(1)}) for row in (0, 1)
    )
    total, weights = task.loss(model, {**batch, "weight": torch.tensor([2.0, 0.5])})
    torch.testing.assert_close(total, 2 * first[0] + 0.5 * second[0])
    assert float(weights) == 2.5


def cut_parts(patches: Patches, batch: Batch) -> tuple[Tensor, Tensor]:
    return patches(batch["image"].float(), batch["mask"], batch[ROW_KEYS])


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("elastic", [0.0, 1.5])
def test_a_part_depends_on_the_key_of_its_row_alone(dimensions: int, elastic: float) -> None:
    task = make_task(dimensions, patch=PARTS[dimensions], **{**ALL, "elastic": elastic})
    batch = make_batch(task, 5)
    pixels, masks = cut_parts(task.patches, batch)
    assert pixels.shape == (10, 1, *PARTS[dimensions]) and masks.shape == (10, *PARTS[dimensions])
    order = torch.tensor([3, 0])
    some_pixels, some_masks = cut_parts(task.patches, {name: values[order] for name, values in batch.items()})
    places = torch.tensor([6, 7, 0, 1])
    torch.testing.assert_close(some_pixels, pixels[places])
    assert torch.equal(some_masks, masks[places])
    assert not torch.equal(pixels[0], pixels[1]), "parts of a row are of several places"
    other_keys = {**batch, ROW_KEYS: batch[ROW_KEYS] + 1}
    assert not torch.equal(cut_parts(task.patches, other_keys)[1], masks)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_a_mask_is_cut_and_mirrored_with_its_image(dimensions: int) -> None:
    task = make_task(dimensions, patch=PARTS[dimensions], flips=list(range(dimensions)), patches_per_row=8)
    batch = make_batch(task, 4)
    batch["image"] = batch["mask"].unsqueeze(1).float()
    pixels, masks = cut_parts(task.patches, batch)
    assert torch.equal(pixels[:, 0], masks.float())
    windows = torch.stack([batch["mask"][row // 8] for row in range(32)])
    assert {int(masks[row].sum()) for row in range(32)} != {int(windows[row].sum()) for row in range(32)}


@pytest.mark.parametrize("dimensions", [2, 3])
def test_without_displacement_bending_cuts_out_the_pixels_themselves(dimensions: int) -> None:
    batch = make_batch(make_task(dimensions, flips=[0]), 3)
    size, part = SIZES[dimensions], tuple(PARTS[dimensions])
    cut, bent = Patches(size, part, 3), Patches(size, part, 3, elastic=1e-9)
    pixels, masks = cut_parts(cut, batch)
    bent_pixels, bent_masks = cut_parts(bent, batch)
    torch.testing.assert_close(bent_pixels, pixels, atol=1e-3, rtol=1e-3)
    assert torch.equal(bent_masks, masks)


def test_bending_moves_pixels_by_the_deviation() -> None:
    size = (64, 64)
    places = torch.arange(64.0).expand(64, 64)
    keys = torch.arange(200) * 12_345_678_901_234_567
    images = torch.stack([places.T, places])[None].expand(200, -1, -1, -1)
    patches = Patches(size, size, elastic=3.0, points=4)
    pixels, _ = patches(images, torch.zeros(200, *size, dtype=torch.uint8), keys)
    middle = (pixels - images)[:, :, 16:48, 16:48]
    assert float(middle[:, :, 5, 5].std()) == pytest.approx(3.0, rel=0.1), "there is a point at a third of the side"
    assert float(middle[:, :, 15, 15].std()) < 2.5, "between points vectors are averaged"
    assert abs(float(middle.mean())) < 0.5
    assert float(middle.abs().max()) < 3.0 * 3**0.5 + 1e-3


def test_a_curve_keeps_the_lowest_and_highest_value() -> None:
    parts = torch.tensor([[0.0, 0.25, 1.0], [3.0, 3.0, 3.0]]).reshape(2, 1, 1, 3)
    changed = change_curve(parts, torch.tensor([2.0, 0.5])).reshape(2, 3)
    torch.testing.assert_close(changed, torch.tensor([[0.0, 0.0625, 1.0], [3.0, 3.0, 3.0]]))


@pytest.mark.parametrize(("length", "tile"), [(20, 20), (21, 20), (100, 16), (7, 2), (9, 1)])
def test_tiles_cover_all_pixels_and_overlap(length: int, tile: int) -> None:
    starts = tile_starts(length, tile)
    assert starts[0] == 0 and starts[-1] == length - tile
    assert all(0 < later - start <= max(tile // 2, 1) for start, later in pairwise(starts))


@pytest.mark.parametrize("dimensions", [2, 3])
def test_the_weight_of_a_tile_falls_towards_its_edges_but_not_to_0(dimensions: int) -> None:
    weights = tile_weights((5, 4, 3)[:dimensions], torch.zeros(1))
    assert weights.shape == (5, 4, 3)[:dimensions]
    assert float(weights.min()) > 0 and float(weights.max()) == 1 and weights.flatten()[0] == weights.min()


@pytest.mark.parametrize("dimensions", [2, 3])
def test_a_tile_as_large_as_the_image_changes_nothing(dimensions: int) -> None:
    torch.manual_seed(2)
    network = UNet(dimensions, 1, 3, 4, 1)
    batch = make_batch(make_task(dimensions), 2)
    untiled, same, tiled = (OverPixels("image", network, tile).eval()(batch) for tile in (None, SIZES[dimensions], [8] * dimensions))
    assert torch.equal(untiled, same)
    assert tiled.shape == untiled.shape and not torch.allclose(tiled, untiled)


def test_tiles_agree_with_the_whole_image_where_the_network_sees_no_more_than_a_pixel() -> None:
    torch.manual_seed(2)

    class Pointwise(torch.nn.Conv2d):
        multiple = 1

    model = OverPixels("image", Pointwise(1, 3, 1), (6, 8)).eval()  # type: ignore[arg-type]
    batch = make_batch(make_task(), 2)
    torch.testing.assert_close(model(batch), OverPixels("image", model.network).eval()(batch))


def test_metrics_equal_those_of_torchmetrics() -> None:
    torch.manual_seed(4)
    task = make_task()
    metrics, batches = task.metrics(), [make_batch(task, rows) for rows in (3, 0, 2)]
    outputs = [torch.randn(len(batch["mask"]), 3, *task.size) + 2 * torch.nn.functional.one_hot(batch["mask"].long(), 3).movedim(-1, 1)
               for batch in batches]  # fmt: skip
    for output, batch in zip(outputs, batches, strict=True):
        task.update(metrics, output, batch)
    predicted, true = torch.cat(outputs).argmax(1), torch.cat([batch["mask"] for batch in batches]).long()
    values = metric_values(metrics)
    jaccard = MulticlassJaccardIndex(3, average="none")(predicted, true)
    assert [values[f"iou_{name}"] for name in task.classes] == pytest.approx(jaccard.tolist(), rel=1e-6)
    assert values["iou"] == pytest.approx(float(jaccard.mean()), rel=1e-6)
    assert values["pixel_accuracy"] == pytest.approx(float((predicted == true).float().mean()), rel=1e-6)
    by_row = DiceScore(3, include_background=False, average="macro", input_format="index")(predicted, true)
    assert values["dice"] == pytest.approx(float(by_row), rel=1e-5)
    assert values["dice"] == pytest.approx((values["dice_a"] + values["dice_b"]) / 2, rel=1e-9), "every row has both classes"
    counts = MulticlassConfusionMatrix(3)(predicted, true).double()
    assert values["pooled_dice"] == pytest.approx(float(dice(counts)[1:].mean()))
    assert isinstance(values["loss"], float)


def test_a_class_that_no_row_has_is_left_out() -> None:
    true = torch.tensor([[[0, 1]], [[0, 0]]], dtype=torch.uint8)
    confusions = row_confusions(torch.tensor([[[0, 1]], [[0, 0]]]), true, 3)
    assert foreground_dice(confusions).tolist() == [1.0, 1.0]
    assert iou(confusions.sum(0)).isnan().tolist() == [False, False, True]
    assert foreground_dice(row_confusions(torch.tensor([[[1, 1]], [[0, 2]]]), true, 3)).tolist() == [pytest.approx(2 / 3), 0.0]
    task = make_task()
    metrics = task.metrics()
    task.update(
        metrics, torch.eye(3)[torch.zeros(2, *task.size, dtype=torch.long)].movedim(-1, 1), {"mask": torch.zeros(2, *task.size).byte()}
    )
    values = metric_values(metrics)
    assert values["dice"] == values["pixel_accuracy"] == 1.0
    assert values["dice_a"] == "no row has or should have the class" and values["iou_b"] == values["pooled_dice"]
    assert isinstance(values["iou_b"], str)


@pytest.mark.parametrize("by_place", [False, True])
def test_a_trivial_predictor_has_the_shares_of_the_training_masks(by_place: bool) -> None:
    masks = torch.tensor([[[0, 1]], [[0, 1]], [[0, 0]]], dtype=torch.uint8)
    predictor = PixelShares("mask", 2, (1, 2), by_place)
    predictor.fit({"mask": masks})
    predictor.finish()
    output = predictor.output({"mask": masks[:1]})
    assert output.shape == (1, 2, 1, 2)
    shares = [[[[0.8, 0.4]], [[0.2, 0.6]]]] if by_place else [[[[0.625] * 2], [[0.375] * 2]]]
    torch.testing.assert_close(output.exp(), torch.tensor(shares))
    assert output.argmax(1).tolist() == ([[[0, 1]]] if by_place else [[[0, 0]]])
    assert predictor.name == ("class shares by place" if by_place else "class shares")


def test_shares_by_place_are_bounded() -> None:
    assert not PixelShares("mask", 3, (4096, 4096), by_place=True).by_place


def test_details_keep_the_rows_with_the_least_dice() -> None:
    task = make_task(3)
    batch = {**make_batch(task, 9), ROW_NUMBERS: torch.arange(9)}
    output = 4 * torch.nn.functional.one_hot(batch["mask"].long(), 3).movedim(-1, 1).float()
    output[4, :, :6] = 0
    output[7, :, :2] = 0
    first, second = task.details(), task.details()
    first.update(output[:5], {name: values[:5] for name, values in batch.items()})
    second.update(output[5:], {name: values[5:] for name, values in batch.items()})
    first.merge(second.parts)
    result = first.result("test", {})
    pictures = result.tables["masks"]
    assert pictures["row"][:2] == [4, 7] and len(pictures["row"]) == 6
    height, width = result.summary["picture_size"]
    level = int((batch["mask"][4] > 0).sum((0, 1)).argmax())
    picture = np.frombuffer(pictures["true"][0], np.uint8).reshape(height, width)
    assert np.array_equal(picture, batch["mask"][4].numpy()[:, ::-1, level].T)
    assert result.tables["worst"]["row"][0] == 4
    assert sum(result.tables["mask_classes"]["pixels"]) == 9 * 12 * 9 * 8
    assert len(result.tables["outcomes"]["dice"]) == 9


def test_a_large_picture_is_thinned() -> None:
    size = (600, 300)
    columns = (
        TensorColumn(name="image", dtype="uint8", shape=(3, *size)),
        TensorColumn(name="mask", dtype="uint8", shape=size, role="target", cardinality=2),
    )
    task = make_task(classes=2, columns=columns)
    details = task.details()
    batch = {"image": torch.zeros(1, 3, *size).byte(), "mask": torch.zeros(1, *size).byte(), ROW_NUMBERS: torch.zeros(1, dtype=torch.long)}
    details.update(torch.zeros(1, 2, *size), batch)
    assert details.result("test", {}).summary["picture_size"] == [150, 75]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patch": [8, 8, 8]}, r"task.patch is \[8, 8, 8\], but mask has 2 axes; give 2 numbers"),
        ({"tile": [8, 8, 8]}, "task.tile"),
        ({"patch": [32, 8]}, r"task.patch is \[32, 8\], but mask is \[20, 28\]; give a patch that fits into it"),
        ({"flips": [2]}, "task.flips is"),
        ({"depth": 5}, "task.depth is 5, which halves 20 pixels to less than one; set it to 4 or less"),
        ({"patch": [4, 8], "depth": 3}, "set it to 2 or less"),
        ({"class_weights": "balanced"}, "has no counts of its classes"),
        ({"class_weights": (1.0, 2.0)}, "it must be 3 weights"),
    ],
)
def test_settings_that_do_not_fit_the_images_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_task(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patch": [8, 8], "tile": [8, 8, 8]}, "give both two numbers for images, or three for volumes"),
        ({"flips": [0, 0]}, "name each axis once"),
        ({"loss": "poisson"}, "loss"),
        ({"metrics": ["f1"]}, "metrics"),
    ],
)
def test_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SegmentationSettings(**settings)


def test_columns_that_are_no_image_with_its_mask_are_refused() -> None:
    image = TensorColumn(name="image", dtype="uint8", shape=(1, 20, 28))
    mask = TensorColumn(name="mask", dtype="uint8", shape=(20, 28), role="target", cardinality=3)
    for columns in (
        (image, replace(mask, shape=(20, 20))),
        (image, replace(mask, cardinality=None)),
        (image, replace(image, name="other"), mask),
        (image, TensorColumn(name="label", dtype="int32", role="target", cardinality=3)),
    ):
        with pytest.raises(ConfigError, match=r"task.kind is segmentation, which takes one image"):
            make_task(columns=columns)


def test_fewer_rows_are_computed_at_once_the_larger_they_are() -> None:
    assert make_task(width=4).rows_at_once == 2**22 // (20 * 28 * 4)
    assert make_task(width=2**20).rows_at_once == 1
    assert make_task(width=64, tile=[8, 8]).rows_at_once == 2**22 // (8 * 8 * 64)
    assert make_task(width=4, tile=[8, 8]).rows_at_once == 2**22 // (20 * 28 * 3), "logits are of whole images"


def test_an_exported_script_answers_as_the_task_does() -> None:
    task, output = make_task(), torch.randn(4, 3, *SIZES[2])
    form = task.prediction_form()
    predicted, classes = task.predict(output), output.argmax(1)
    assert find_answer(form)(output.numpy(), json.loads(json.dumps(form)), np.asarray) == predicted
    assert predicted["prediction"] == classes.tolist() and len(predicted["share_a"]) == 4


def test_a_volume_and_its_mask_have_one_spacing() -> None:
    def check(*spacing: list[float] | None) -> None:
        encoders = {
            name: FittedEncoder(feature={"encoder": kind, "spacing": value}, inputs=(name,), state={}, column=column)
            for (name, kind), value, column in zip({"image": "volume", "mask": "mask"}.items(), spacing, columns, strict=True)
        }
        Segmentation(SegmentationSettings(depth=2), Data(columns, ("a", "b"), encoders=encoders))

    columns = (
        TensorColumn(name="image", dtype="float16", shape=(1, 8, 8, 8)),
        TensorColumn(name="mask", dtype="uint8", shape=(8, 8, 8), role="target", cardinality=2),
    )
    check([1, 1, 1], [1, 1, 1])
    check(None, None)
    with pytest.raises(ConfigError, match=r"features\.image\.spacing is \[1, 1, 1\], but that of mask is not set, .*; give both the same"):
        check([1, 1, 1], None)
