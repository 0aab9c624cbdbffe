"""Generated images and volumes with their masks, from files to a trained, exported model that answers with masks."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest
from picture_slices import Slice, fit
from pyspark.sql import SparkSession

from pipelines.api import open_predictions
from pipelines.applications.segmentation.figures import mask_tables
from pipelines.data.loader import Loader, Order
from pipelines.data.versions.versions import open_version
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.svg_figures import draw_figures
from pipelines.serving.batch.predict_tables import predict_tables
from pipelines.serving.export.export_folder import export
from pipelines.serving.model import load_model
from pipelines.tasks.bind import build_task
from pipelines.tasks.supervised import class_weights

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = 30
Scene = tuple[np.ndarray, np.ndarray]


def draw_scene(number: int, size: tuple[int, ...]) -> Scene:
    """Noise with a bright ball, and where the ball is."""
    random = np.random.default_rng(number)
    centre = [random.integers(length // 3, length - length // 3) for length in size]
    places = np.meshgrid(*map(np.arange, size), indexing="ij")
    inside = sum((place - middle) ** 2 for place, middle in zip(places, centre, strict=True)) < (min(size) / 3.5) ** 2
    return random.integers(20, 90, size) + 110 * inside, inside.astype(np.uint8)


def png_bytes(values: np.ndarray) -> bytes:
    file = BytesIO()
    PIL.Image.fromarray(values.astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def nifti_bytes(values: np.ndarray) -> bytes:
    nibabel = pytest.importorskip("nibabel")
    return nibabel.Nifti1Image(values.astype(np.uint8), np.eye(4)).to_bytes()


def write_files(folder: Path, to_bytes: Callable[[np.ndarray], bytes], end: str, size: tuple[int, ...], values: list[int]) -> None:
    """Pairs of files, one image without a label, one label without an image, and one label of another size."""
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    for number in range(ROWS + 3):
        image, mask = draw_scene(number, size)
        mask = np.array(values)[mask]
        if number == ROWS:
            mask = mask[:-2]
        for name, array in (("images", image), ("labels", mask)):
            if (name, number) not in (("labels", ROWS + 1), ("images", ROWS + 2)):
                (folder / name / f"{number}{end}").write_bytes(to_bytes(array))


SMALL = {"task.width": 8, "task.depth": 2, "task.elastic": 1.0, "train.epochs": 6}
TABLES = {"images": "images", "labels": "labels"}


@pytest.fixture(scope="module")
def images(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Slice:
    folder = tmp_path_factory.mktemp("images")
    write_files(folder, png_bytes, ".png", (32, 24), [255, 0])
    flags = {"dataset.features.image.shape": [1, 32, 24], "dataset.target.label.shape": [32, 24], "task.patch": [16, 16]}
    return fit("membrane", folder, TABLES, {**SMALL, **flags, "export.max_batch_rows": 4})


@pytest.fixture(scope="module")
def volumes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Slice:
    pytest.importorskip("nibabel")
    folder = tmp_path_factory.mktemp("volumes")
    write_files(folder, nifti_bytes, ".nii", (14, 12, 10), [0, 1])
    shape = {f"dataset.{name}.shape": [16, 12, 12] for name in ("features.image", "target.label")}
    return fit("hippocampus", folder, TABLES, {**SMALL, **shape, "dataset.target.label.classes": ["background", "ball"], "train.epochs": 4})


@pytest.fixture(params=["images", pytest.param("volumes", marks=pytest.mark.full)])
def trained_slice(request: pytest.FixtureRequest) -> Slice:
    return request.getfixturevalue(request.param)


def test_rows_without_a_partner_or_of_another_size_are_quarantined(trained_slice: Slice) -> None:
    is_image = trained_slice.config.name == "membrane"
    fault = f"it has … {'pixels' if is_image else 'voxels'}, but its image …"
    assert trained_slice.manifest.quarantined == {
        f"label: mask cannot encode a value: {fault}": 1,
        "has a label": 1,
        "has an image": 1,
    }
    assert sum(split.rows for split in trained_slice.manifest.splits.values()) == ROWS


def test_classes_are_counted_in_the_pixels_of_the_training_split(trained_slice: Slice) -> None:
    version = open_version(trained_slice.config.dataset.path, trained_slice.config.data_identity)
    masks = np.concatenate([batch["label"] for batch in Loader(version, "train", Order(1, 64, shuffle=False, remainder="keep"))])
    counts = np.bincount(masks.ravel(), minlength=2)
    assert version.manifest.encoders["label"].class_counts == tuple(counts.tolist())
    assert version.manifest.encoders["image"].class_counts == ()
    task = build_task(trained_slice.config.task.model_copy(update={"class_weights": "balanced"}), version.manifest)
    weights = class_weights(task.settings, task.data)
    assert weights is not None and (weights.numpy() * counts).sum() == pytest.approx(counts.sum())
    assert weights.numpy() * counts == pytest.approx([counts.sum() / 2] * 2)


def test_training_beats_the_trivial_predictor(trained_slice: Slice) -> None:
    metrics = trained_slice.result.metrics
    name = "membrane" if trained_slice.config.name == "membrane" else "ball"
    assert metrics["test/dice"] == pytest.approx(metrics[f"test/dice_{name}"])
    assert float(metrics["test/dice"]) > 0.6
    assert float(metrics["test/pixel_accuracy"]) > 0.9


def predict_test_rows(trained_slice: Slice, column: str) -> tuple[Any, list[Any]]:
    """Predictions of the test rows by the served model from raw bytes, and those of evaluation, by row in one order."""
    version = open_version(trained_slice.config.dataset.path, trained_slice.config.data_identity)
    task = build_task(trained_slice.config.task, version.manifest)
    batches = list(Loader(version, "test", Order(1, 64, shuffle=False, remainder="keep")))
    evaluated = [mask for batch in batches for mask in task.predict(trained_slice.strategy.predict(batch))[column]]
    folder = Path(trained_slice.config.source.tables["images"].paths[0])
    files = [file.read_bytes() for file in sorted(folder.iterdir())]
    import pandas as pd

    return load_model(trained_slice.config.tracking.uri, trained_slice.model).predict(pd.DataFrame({"image": files})), evaluated


def test_a_served_model_takes_files_and_answers_with_masks(trained_slice: Slice) -> None:
    served, evaluated = predict_test_rows(trained_slice, "prediction")
    assert served["refused"].isna().all()
    shape = trained_slice.manifest.target.shape
    assert all(np.array(mask).shape == shape for mask in served["prediction"])
    by_text = {json.dumps(mask) for mask in served["prediction"]}
    assert len(evaluated) > 2 and all(json.dumps(mask) in by_text for mask in evaluated)
    shares = served[[name for name in served if name.startswith("share_")]].sum(axis=1)
    assert shares.to_numpy() == pytest.approx(np.ones(len(served)))


@pytest.mark.full
def test_batch_prediction_writes_masks_of_images_that_have_no_labels(trained_slice: Slice, tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    size, end, to_bytes = ((32, 24), ".png", png_bytes) if trained_slice.config.name == "membrane" else ((14, 12, 10), ".nii", nifti_bytes)
    scenes = [draw_scene(100 + number, size) for number in range(3)]
    for number, (image, _) in enumerate(scenes):
        (folder / f"{number}{end}").write_bytes(to_bytes(image))
    (folder / f"9{end}").write_bytes(b"no picture")
    inputs = [f"images={folder}", f"labels={folder}"]
    config = trained_slice.config.model_copy(update={"source": trained_slice.config.source.model_copy(update={"max_quarantined": 0.5})})
    key = trained_slice.config.dataset.key[0]
    written = predict_tables(config, trained_slice.model, inputs, str(tmp_path / "out"), [key])
    rows = open_predictions(str(tmp_path / "out")).to_table().sort_by(key)
    assert rows.num_rows == 3
    assert written.rows_out == 3 and list(written.refused.values()) == [1] and "image: " in next(iter(written.refused))
    masks = [np.array(mask) for mask in rows["prediction"].to_pylist()]
    if trained_slice.config.name == "membrane":
        agreement = [(mask == scene).mean() for mask, (_, scene) in zip(masks, scenes, strict=True)]
        assert min(agreement) > 0.9
    assert all(mask.shape == trained_slice.manifest.target.shape for mask in masks)


def test_the_page_shows_the_worst_masks_beside_their_images(trained_slice: Slice) -> None:
    evaluation = trained_slice.evaluation
    split = SplitEvaluation("test", evaluation.summary, evaluation.tables)
    (figure,) = draw_figures(split)
    assert figure.svg.startswith(b"<?xml") and figure.svg.count(b"<image") == 3 * len(evaluation.tables["masks"]["row"])
    assert "with the least Dice" in figure.caption and len(figure.svg) < 400_000
    (table,) = mask_tables([split])
    assert [row[0] for row in table.rows] == list(trained_slice.manifest.encoders["label"].feature["classes"])


@pytest.mark.full
def test_an_export_predicts_the_same_masks(trained_slice: Slice) -> None:
    folder = export(trained_slice.config, trained_slice.run_id, "onnx")
    report = {row["model"]: row for row in json.loads((folder / "parity.json").read_text())["rows"]}
    assert report["onnx"]["rows"] == trained_slice.manifest.splits["test"].rows
    assert report["onnx"]["max_difference"] < 1e-3 and report["onnx"]["equal_decisions"] > 0.9999
    assert report["onnx"]["dice"] == pytest.approx(report["mlflow"]["dice"], abs=1e-3)
    manifest = json.loads((folder / "manifest.json").read_text())
    examples = json.loads((folder / "examples.json").read_text())
    classes = ["cell", "membrane"] if trained_slice.config.name == "membrane" else ["background", "ball"]
    form = "pipelines.applications.segmentation.answers:class_masks"
    assert manifest["answer"] == {"form": form, "classes": classes, "inexact": ["prediction"]}
    assert set(examples["predictions"][0]) == {*(f"share_{name}" for name in classes), "refused"}


@pytest.mark.full
def test_a_version_holds_masks_as_bytes_and_volumes_as_float16(volumes: Slice) -> None:
    version = open_version(volumes.config.dataset.path, volumes.config.data_identity)
    group = version.split_row_groups("train")[0]
    schema = pq.read_schema(f"{version.root}/{group.file}")
    assert schema.field("image").type.byte_width == 2 * 16 * 12 * 12 and schema.field("label").type.byte_width == 16 * 12 * 12
