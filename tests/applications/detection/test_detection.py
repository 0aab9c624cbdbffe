"""The task `detection`: its network, its loss row by row, the boxes of its output, what it draws, and its metrics."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from pipelines.applications.detection import task as detection
from pipelines.applications.detection.average_precision import COCO, HALF, BoxPrecision
from pipelines.applications.detection.box_details import MeanBoxes, count_right
from pipelines.applications.detection.losses import decode_boxes, distances_to, giou, make_targets
from pipelines.applications.detection.predicted_boxes import find_boxes, pairwise_iou
from pipelines.applications.detection.settings import DetectionSettings
from pipelines.applications.detection.task import Detection, Views, mirror, true_boxes
from pipelines.data.loader.order import row_keys
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import ROW_KEYS, ROW_NUMBERS, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.answers import find_answer
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.metrics.table import metric_values

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = (40, 56)
CLASSES = ("a", "b", "c d/e")
MOST = 6
ALL = {"flips": [0, 1], "zoom": 0.5, "jitter": 0.3}


def columns(size: tuple[int, int] = SIZE) -> tuple[TensorColumn, ...]:
    return (
        TensorColumn(name="image", dtype="uint8", shape=(3, *size)),
        TensorColumn(name="boxes", dtype="float32", shape=(MOST, 5), role="target"),
    )


def make_task(other: tuple[TensorColumn, ...] = (), **settings: Any) -> Detection:
    small = {"width": 4, "stages": 2, "head": 8, **settings}
    return Detection(DetectionSettings(**small), Data(other or columns(), CLASSES))


def make_boxes(rows: int, seed: int = 0) -> Tensor:
    """Boxes of 8 to 20 pixels, a different number of them in each row; the first row has none."""
    random = np.random.default_rng(seed)
    boxes = np.full((rows, MOST, 5), 0, np.float32)
    boxes[..., 0] = -1
    for row in range(rows):
        for place in range(row % (MOST + 1)):
            width, height = random.integers(8, 20, 2)
            x, y = random.integers(0, SIZE[1] - width), random.integers(0, SIZE[0] - height)
            boxes[row, place] = random.integers(0, len(CLASSES)), x, y, x + width, y + height
    return torch.from_numpy(boxes)


def make_batch(task: Detection, rows: int, seed: int = 0) -> Batch:
    """Images with a bright square of a channel in each box."""
    boxes = make_boxes(rows, seed)
    images = torch.full((rows, 3, *SIZE), 40, dtype=torch.uint8)
    for row, row_boxes in enumerate(true_boxes(boxes)):
        for number, *edges in row_boxes.astype(int).tolist():
            images[row, number, edges[1] : edges[3], edges[0] : edges[2]] = 220
    stride, start = row_keys(5, 1)
    keys = {ROW_KEYS: torch.arange(rows) * stride + start} if task.draws else {}
    return {"image": images, "boxes": boxes, **keys}


@pytest.mark.parametrize("size", [(40, 56), (37, 51), (3, 2)])
@pytest.mark.parametrize("stride", [4, 8])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_the_output_has_a_cell_for_each_stride(size: tuple[int, int], stride: int, rows: int) -> None:
    task = make_task(columns(size), stride=stride, stages=4, blocks=2)
    output = task.model().eval()({"image": torch.zeros((rows, 3, *size), dtype=torch.uint8)})
    assert output.shape == (rows, len(CLASSES) + 4, *task.map_size)
    assert all(len(values) == rows for values in task.predict(output).values())
    total, weight = task.loss(task.model(), {"image": torch.zeros((rows, 3, *size), dtype=torch.uint8), "boxes": make_boxes(rows)})
    total.backward()
    assert float(weight) == rows and bool(total.isfinite())


@pytest.mark.parametrize("settings", [{}, ALL])
def test_a_row_s_loss_is_the_same_among_any_rows(settings: dict[str, Any]) -> None:
    task = make_task(**settings)
    batch, model = make_batch(task, 9), task.model()
    total, weight = task.loss(model, batch)
    alone = [task.loss(model, {name: values[row : row + 1] for name, values in batch.items()}) for row in range(9)]
    reversed_total, _ = task.loss(model, {name: values.flip(0) for name, values in batch.items()})
    torch.testing.assert_close(sum(loss for loss, _ in alone), total, rtol=1e-4, atol=0)
    torch.testing.assert_close(reversed_total, total, rtol=1e-4, atol=0)
    assert float(weight) == 9
    assert len({round(float(loss.detach()), 6) for loss, _ in alone}) >= 8


def test_padding_and_order_of_boxes_change_no_loss() -> None:
    task = make_task()
    boxes, output = make_boxes(9), torch.randn(9, 7, *task.map_size)
    losses = task.row_losses(output, boxes)
    wider = torch.cat([boxes, boxes.new_tensor([-1.0, 0, 0, 0, 0]).expand(9, 5, 5)], 1)
    torch.testing.assert_close(task.row_losses(output, wider), losses)
    torch.testing.assert_close(task.row_losses(output, wider.flip(1)), losses)


@pytest.mark.parametrize("extreme", [0.0, 100.0, -100.0])
def test_the_gradient_is_finite_for_rows_without_boxes_and_for_extreme_outputs(extreme: float) -> None:
    task = make_task()
    for boxes in (make_boxes(1), make_boxes(8), torch.tensor([[[0.0, 3, 3, 3.01, 3.01]] + [[-1.0, 0, 0, 0, 0]] * (MOST - 1)])):
        output = torch.full((len(boxes), 7, *task.map_size), extreme, requires_grad=True)
        losses = task.row_losses(output, boxes)
        (gradient,) = torch.autograd.grad(losses.sum(), output)
        assert bool(losses.isfinite().all()) and bool(gradient.isfinite().all()) and bool((losses >= 0).all())
    no_box = torch.zeros((1, 7, *task.map_size), requires_grad=True)
    (gradient,) = torch.autograd.grad(task.row_losses(no_box, make_boxes(1)).sum(), no_box)
    assert bool((gradient[:, :3] > 0).all()) and not gradient[:, 3:].any(), "it learns that there is nothing, and no distance"


def ideal_output(boxes: Tensor, task: Detection) -> Tensor:
    """What a perfect network says."""
    targets = make_targets(boxes, len(CLASSES), task.map_size, task.settings.stride)
    heat = targets.heat.clamp(1e-6, 1 - 1e-6)
    return torch.cat([heat.logit(), distances_to(targets.boxes, task.settings.stride).clamp(min=0.01).log()], 1)


@pytest.mark.parametrize("stride", [4, 8])
def test_boxes_come_back_from_a_clean_map(stride: int) -> None:
    """Boxes of equal class whose middles are in cells next to each other are one; these are not."""
    task = make_task(stride=stride)
    rows = [
        [[0, 2, 3, 14, 19], [1, 2, 3, 14, 19], [0, 30, 8, 51, 39], [2, 40, 20, 56, 40]],
        [[2, 0, 0, 56, 40]],
        [],
        [[1, 4, 4, 14, 13], [1, 24, 4, 34, 13], [1, 4, 24, 14, 33]],
    ]
    boxes = torch.zeros(4, MOST, 5)
    boxes[..., 0] = -1
    for row, row_boxes in enumerate(rows):
        for place, box in enumerate(row_boxes):
            boxes[row, place] = torch.tensor(box)
    detected = find_boxes(ideal_output(boxes, task).numpy(), stride, SIZE, 100, 0.9)
    for expected, actual in zip(rows, detected, strict=True):
        in_order = actual[np.lexsort(actual[:, :5].T[::-1])]
        assert in_order[:, :5] == pytest.approx(np.array(sorted(expected), float).reshape(-1, 5), abs=1e-3)
        assert actual[:, 5] == pytest.approx(np.ones(len(expected)), abs=1e-5)
    losses = task.row_losses(ideal_output(boxes, task), boxes)
    assert float(losses.max()) < 1.0 and bool((losses < task.row_losses(torch.zeros(4, 7, *task.map_size), boxes) / 5).all())


def test_cells_near_the_middle_learn_the_smaller_of_two_boxes() -> None:
    boxes = torch.tensor([[[0.0, 0, 0, 56, 40], [1.0, 20, 12, 36, 28], [-1.0, 0, 0, 0, 0]]])
    targets = make_targets(boxes, 3, (10, 14), 4)
    assert targets.boxes[0, :, 5, 7].tolist() == [20, 12, 36, 28]
    assert targets.boxes[0, :, 1, 7].tolist() == targets.boxes[0, :, 5, 4].tolist() == [0, 0, 56, 40]
    assert targets.heat[0, 0, 5, 7] == targets.heat[0, 1, 5, 7] == 1 and not targets.heat[0, 2].any()
    assert float(targets.weights.sum()) == pytest.approx(2) and float(targets.weights[0, 5, 7]) > 0.1
    assert targets.counts.tolist() == [2]


def test_distances_give_the_boxes_that_they_are_of() -> None:
    boxes = torch.tensor([1.0, 2, 50, 39]).reshape(1, 4, 1, 1).expand(1, 4, 10, 14)
    cells = distances_to(boxes, 4)
    inside = (cells > 0).all(1)
    torch.testing.assert_close(decode_boxes(cells.clamp(min=0.01).log(), 4).movedim(1, -1)[inside], boxes.movedim(1, -1)[inside])


def test_generalised_iou_is_that_of_the_paper() -> None:
    first = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2], [0, 0, 1, 1]])
    second = torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3], [2, 0, 3, 1]])
    assert giou(first, second).tolist() == pytest.approx([1, 1 / 7 - 2 / 9, -1 / 3])
    assert pairwise_iou(first.numpy(), second.numpy())[0].tolist() == pytest.approx([1, 1 / 7, 0])


def test_peaks_are_cut_off_at_the_image_and_the_best_of_overlapping_ones_counts() -> None:
    output = np.full((1, 6, 10, 14), -9.0, np.float32)
    output[0, 2:] = np.log(8.0)
    for number, y, x, logit in ((0, 5, 5, 3.0), (0, 5, 7, 2.0), (1, 5, 7, 1.0), (0, 0, 13, 0.5)):
        output[0, number, y, x] = logit
    (boxes,) = find_boxes(output, 4, SIZE, 100, 0.1)
    assert boxes[:, 0].tolist() == [0, 0, 1, 0], "the overlap of 1 / 3 of the first two is not enough"
    assert boxes[3, 1:5].tolist() == pytest.approx([46, 0, 56, 10])
    output[0, 2:] = np.log(40.0)
    (boxes,) = find_boxes(output, 4, (400, 400), 100, 0.1)
    expected = [[number, 1 / (1 + np.exp(-logit))] for number, logit in ((0, 3.0), (1, 1.0), (0, 0.5))]
    assert boxes[:, [0, 5]] == pytest.approx(np.array(expected)), "the second one overlaps the first by 0.89"
    assert len(find_boxes(output, 4, (400, 400), 1, 0.1)[0]) == 1


# Views.


def test_views_are_a_function_of_the_row_s_key() -> None:
    task = make_task(**ALL)
    batch = make_batch(task, 9)
    images, boxes = task.views(batch["image"].float() / 255, batch["boxes"], batch[ROW_KEYS])
    for rows in (slice(4, 5), slice(0, 3), slice(2, 9)):
        some_images, some_boxes = task.views(batch["image"][rows].float() / 255, batch["boxes"][rows], batch[ROW_KEYS][rows])
        torch.testing.assert_close(some_images, images[rows])
        torch.testing.assert_close(some_boxes, boxes[rows])
    other_images, _ = task.views(batch["image"].float() / 255, batch["boxes"], batch[ROW_KEYS] + 1)
    assert not torch.allclose(other_images, images)
    assert float(images.min()) >= 0 and float(images.max()) <= 1


@pytest.mark.parametrize("views", [Views(SIZE, (0, 1)), Views(SIZE, (), 0.6), Views(SIZE, (0,), 0.6)], ids=["flips", "zoom", "both"])
def test_boxes_stay_on_their_objects(views: Views) -> None:
    """Each box is a bright square, whose edges are found again in the view."""
    boxes = torch.full((64, MOST, 5), -1.0)
    boxes[:, 0] = torch.tensor([1.0, 8, 12, 28, 32])
    images = torch.zeros(64, 3, *SIZE)
    images[:, :, 12:32, 8:28] = 1
    stride, start = row_keys(1, 1)
    view, moved = views(images, boxes, torch.arange(64) * stride + start)
    places = set()
    for image, row in zip(view[:, 0] - view[:, :1].amin((1, 2, 3))[:, None, None], moved, strict=True):
        if row[0, 0] < 0:
            continue
        bright = image > image.max() / 2
        rows, wide = bright.any(1).nonzero(), bright.any(0).nonzero()
        edges = [wide.min(), rows.min(), wide.max() + 1, rows.max() + 1]
        assert row[0, 1:].tolist() == pytest.approx([float(edge) for edge in edges], abs=1.01)
        places.add(tuple(round(float(edge)) for edge in edges))
    assert len(places) >= 4
    assert (moved[:, 1:, 0] == -1).all()


def test_a_view_in_bf16_has_its_places_in_float32() -> None:
    """Boxes are computed exactly: pixels that are taken from other places would not be theirs."""
    views, images, keys = Views(SIZE, (), 0.6), torch.rand(8, 3, *SIZE), torch.arange(8) * 7_919
    expected, _ = views(images, make_boxes(8), keys)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        view, _ = views(images, make_boxes(8), keys)
    assert torch.equal(view, expected)


def test_a_box_that_is_hardly_seen_is_none() -> None:
    boxes = torch.full((500, 1, 5), 0.0)
    boxes[:, 0, 1:] = torch.tensor([0.0, 0, 10, 10])
    stride, start = row_keys(1, 1)
    _, moved = Views(SIZE, (), 2.0)(torch.zeros(500, 1, *SIZE), boxes, torch.arange(500) * stride + start)
    sizes = moved[:, 0, 3:] - moved[:, 0, 1:3]
    assert 50 < int((moved[:, 0, 0] == -1).sum()) < 450
    assert bool((sizes[moved[:, 0, 0] >= 0] > 0).all())


def test_twice_mirrored_is_as_before() -> None:
    boxes = make_boxes(8)
    for axis, length in enumerate(SIZE):
        torch.testing.assert_close(mirror(mirror(boxes, axis, length), axis, length), boxes)
    assert mirror(torch.tensor([[0.0, 1, 2, 3, 4]]), 0, 40).tolist() == [[0, 1, 36, 3, 38]]
    assert mirror(torch.tensor([[0.0, 1, 2, 3, 4]]), 1, 56).tolist() == [[0, 53, 2, 55, 4]]


def test_evaluation_sees_images_as_they_are() -> None:
    task = make_task(**ALL)
    batch, metrics = make_batch(task, 3), task.metrics()
    model = task.model().eval()
    task.update(metrics, model(batch), batch)
    plain = make_task().row_losses(model(batch), batch["boxes"]).double().mean()
    assert metric_values(metrics)["loss"] == pytest.approx(float(plain.detach()))


# Metrics.


def test_average_precision_is_that_of_a_worked_example() -> None:
    """Three true boxes in two rows. By score: right, wrong, right, and one is never found. Precision is 1 up to the recall of 1/3, that is
    at 34 of the 101 recalls, and 2/3 up to 2/3, at 33 more."""
    true = [np.array([[0, 0.0, 0, 10, 10], [0, 20.0, 20, 30, 30]]), np.array([[0, 0.0, 0, 10, 10]])]
    predicted = [
        np.array([[0, 0.0, 0, 10, 10, 0.9], [0, 40.0, 40, 50, 50, 0.8]]),
        np.array([[0, 0.0, 0, 10, 8, 0.7], [0, 0.0, 0, 10, 10, 0.6]]),
    ]
    metric = BoxPrecision(HALF)
    metric.update(predicted, true)
    assert float(metric.compute()) == pytest.approx((34 + 33 * 2 / 3) / 101)
    strict = BoxPrecision((0.85,))
    strict.update(predicted, true)
    assert float(strict.compute()) == pytest.approx((34 + 33 * 2 / 4) / 101), "the box of 80 % is wrong, and the one after it right"
    both = BoxPrecision((0.5, 0.85))
    both.update(predicted, true)
    assert float(both.compute()) == pytest.approx((float(metric.compute()) + float(strict.compute())) / 2)


def test_classes_count_alike_and_one_that_is_nowhere_does_not() -> None:
    true = [np.array([[0, 0.0, 0, 10, 10], [1, 20.0, 20, 30, 30]])]
    predicted = [np.array([[0, 0.0, 0, 10, 10, 0.9], [2, 0.0, 0, 10, 10, 0.5]])]
    expected: dict[int | None, float | str] = {None: 0.5, 0: 1.0, 1: 0.0, 2: "no row has a box of the class"}
    for number, value in expected.items():
        metric = BoxPrecision(HALF, number)
        metric.update(predicted, true)
        assert (metric.missing_reason() or float(metric.compute())) == (value if isinstance(value, str) else pytest.approx(value))
    nothing = BoxPrecision(COCO)
    nothing.update([np.zeros((0, 6))], [np.zeros((0, 5))])
    assert nothing.missing_reason() == "no row has a box" and bool(nothing.compute().isnan())
    none_found = BoxPrecision(COCO)
    none_found.update([np.zeros((0, 6))], true)
    assert float(none_found.compute()) == 0


def test_merged_parts_give_the_same_metrics_in_any_division() -> None:
    task = make_task()
    batch = make_batch(task, 14)
    output = ideal_output(batch["boxes"], task) + 0.3 * torch.randn(14, 7, *task.map_size, generator=torch.Generator().manual_seed(1))
    undivided = task.metrics()
    task.update(undivided, output, batch)
    for cut in (1, 6, 13):
        parts = [task.metrics(), task.metrics()]
        for part, rows in zip(parts, (slice(0, cut), slice(cut, None)), strict=True):
            task.update(part, output[rows], {name: values[rows] for name, values in batch.items()})
        for name, metric in parts[0].items(keep_base=True, copy_state=False):
            metric.merge_state(parts[1][name])
        assert metric_values(parts[0]) == pytest.approx(metric_values(undivided), rel=1e-12)
    assert 0.05 < float(metric_values(undivided)["map"]) < float(metric_values(undivided)["map_50"]) < 1


def test_a_perfect_model_has_precision_1_and_the_names_of_classes_are_made_for_mlflow() -> None:
    task = make_task()
    batch, metrics = make_batch(task, 7), task.metrics()
    task.update(metrics, ideal_output(batch["boxes"], task), batch)
    values = metric_values(metrics)
    assert list(values) == ["loss", "map", "map_50", "map_50_a", "map_50_b", "map_50_c d_e"]
    assert values["map_50_a"] == pytest.approx(1, abs=0.15)
    assert task.monitor == ("map_50", "max")


def test_a_few_steps_find_the_objects() -> None:
    torch.manual_seed(0)
    task = make_task(stages=3, width=8)
    batch, model = make_batch(task, 14), task.model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        total, weight = task.loss(model, batch)
        (total / weight).backward()
        optimizer.step()
        losses.append(float(total.detach() / weight))
    metrics = task.metrics()
    with torch.no_grad():
        task.update(metrics, model.eval()(batch), batch)
    assert losses[-1] < 0.4 * losses[0] and float(metric_values(metrics)["map_50"]) > 0.5


def test_without_the_library_of_its_metrics_the_training_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    make_task().check()
    monkeypatch.setattr(detection, "has_library", lambda: False)
    with pytest.raises(ConfigError, match=r"it needs faster-coco-eval, which is not installed; pip install"):
        make_task().check()


# Trivial predictor, details, predictions.


def test_the_trivial_predictor_says_where_boxes_mostly_are(caplog: pytest.LogCaptureFixture) -> None:
    task = make_task()
    (predictor,) = task.trivial_predictors()
    boxes = torch.full((5, MOST, 5), -1.0)
    boxes[:, 0] = torch.tensor([1.0, 8, 12, 28, 32])
    boxes[3:, 1] = torch.tensor([0.0, 30, 4, 50, 20])
    predictor.fit({"boxes": boxes[:2]})
    predictor.fit({"boxes": boxes[2:]})
    predictor.finish()
    assert caplog.messages == [
        "no box of the class c d/e is among the rows of the training split that were looked at; a model cannot learn it"
    ]
    output = predictor.output({"boxes": boxes[:3]})
    assert output.shape == (3, 7, *task.map_size)
    boxes_of_rows = task.find(output, 100, 0.3)
    assert boxes_of_rows[2][:2, [0, 5]].tolist() == pytest.approx(np.array([[1, 1 - 1e-4], [0, 0.4]]), abs=1e-4)
    assert boxes_of_rows[0][0, 1:5].tolist() == pytest.approx([8, 12, 28, 32], abs=0.01)
    MeanBoxes("boxes", CLASSES, task.map_size, 4).finish()


def test_details_count_boxes_and_keep_the_rows_with_the_largest_loss() -> None:
    task = make_task()
    batch = {**make_batch(task, 9), ROW_NUMBERS: torch.arange(9)}
    output = ideal_output(batch["boxes"], task)
    output[4] = -output[4]
    first, second = task.details(), task.details()
    first.update(output[:5], {name: values[:5] for name, values in batch.items()})
    second.update(output[5:], {name: values[5:] for name, values in batch.items()})
    first.merge(second.parts)
    result = first.result("test", {})
    pictures, classes = result.tables["boxes"], result.tables["box_classes"]
    assert pictures["row"][0] == 4 and len(pictures["row"]) == 6 and result.tables["worst"]["row"][0] == 4
    assert np.frombuffer(pictures["true"][0], np.float32).reshape(-1, 5).tolist() == true_boxes(batch["boxes"])[4].tolist()
    height, width, _ = result.summary["picture_size"]
    assert (height, width) == SIZE and len(pictures["image"][0]) == height * width * 3
    assert sum(classes["true"]) == int((batch["boxes"][..., 0] >= 0).sum())
    counts = [list(classes[name]) for name in ("right", "true", "predicted")]
    assert all(right <= min(limits) for right, *limits in zip(*counts, strict=True))
    assert len(result.tables["outcomes"]["loss"]) == 9


def test_each_true_box_is_found_once() -> None:
    true = np.array([[0, 0.0, 0, 10, 10], [1, 0.0, 0, 10, 10]])
    predicted = np.array([[0, 0.0, 0, 10, 9, 0.9], [0, 0.0, 0, 10, 10, 0.8], [1, 8.0, 8, 18, 18, 0.7]])
    assert count_right(predicted, true, 3).tolist() == [[1, 1, 0], [2, 1, 0], [1, 0, 0]]


def test_predictions_are_shares_of_width_and_height_with_types_of_their_own() -> None:
    task = make_task()
    boxes = torch.full((2, MOST, 5), -1.0)
    boxes[0, 0] = torch.tensor([1.0, 14, 10, 28, 20])
    predicted = task.predict(ideal_output(boxes, task))
    edges = [predicted[name][0].tolist() for name in ("left", "top", "right", "bottom")]
    assert edges == [pytest.approx([value], abs=1e-5) for value in (0.25, 0.25, 0.5, 0.5)]
    assert predicted["classes"][0].tolist() == ["b"] and predicted["scores"][0].tolist() == pytest.approx([1], abs=1e-5)
    assert (predicted["count_b"], predicted["count_a"]) == ([1, 0], [0, 0])
    kinds = {name: pa.array(values[1:]).type for name, values in predicted.items()}
    assert kinds["left"] == kinds["scores"] == pa.list_(pa.float64()) and kinds["classes"] == pa.list_(pa.string()), "of an empty row"
    assert {name: pa.array(values[:1]).type for name, values in predicted.items()} == kinds


def test_an_exported_script_answers_as_the_task_does() -> None:
    task, boxes = make_task(), make_boxes(6)
    output = ideal_output(boxes, task)
    form, predicted = json.loads(json.dumps(task.prediction_form())), task.predict(output)
    exported = find_answer(form)(output.numpy(), form, np.asarray)
    assert str(exported) == str(predicted) and sum(map(len, predicted["scores"])) > 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"flips": [0, 0]}, "name each axis once"),
        ({"flips": [2]}, "flips"),
        ({"stride": 8, "stages": 1}, "set stages to 2 or more, or stride to 4"),
        ({"class_weights": "balanced"}, "class_weights"),
    ],
)
def test_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DetectionSettings(**settings)


def test_columns_that_are_no_image_with_its_boxes_are_refused() -> None:
    image, boxes = columns()
    for other in (
        (image, replace(boxes, shape=(6, 4))),
        (image, replace(image, name="other"), boxes),
        (replace(image, shape=SIZE), boxes),
        (image, TensorColumn(name="label", dtype="int32", role="target", cardinality=3)),
    ):
        with pytest.raises(ConfigError, match=r"task.kind is detection, which takes one image"):
            make_task(other)


def test_boxes_of_another_size_than_the_image_are_refused() -> None:
    image, boxes = columns()

    def check(shape: list[int]) -> None:
        fitted = FittedEncoder(feature={"encoder": "boxes", "shape": shape}, inputs=("boxes",), state={}, column=boxes)
        Detection(DetectionSettings(), Data((image, boxes), CLASSES, encoders={"boxes": fitted}))

    check(list(SIZE))
    with pytest.raises(ConfigError, match=r"dataset.target.boxes.shape is \[40, 40\], but image has \[40, 56\] pixels, so that"):
        check([40, 40])


def test_fewer_rows_are_computed_at_once_the_larger_they_are() -> None:
    assert make_task(width=8).rows_at_once == 2**22 // (40 * 56 * 2)
    assert make_task(width=2**16).rows_at_once == 1
