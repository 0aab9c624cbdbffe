"""Generated pictures with boxes, from files to a trained, exported model that answers with boxes; and boxes of COCO's JSON."""

import json
import re
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import pytest
import yaml
from picture_slices import Slice, fit
from pyspark.sql import SparkSession

from pipelines.api import open_predictions
from pipelines.applications.detection.figures import box_tables
from pipelines.applications.detection.task import true_boxes
from pipelines.config import load
from pipelines.config.serving import Endpoint
from pipelines.data.loader import Loader, Order
from pipelines.data.versions.versions import open_version
from pipelines.etl.run import run
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.svg_figures import draw_figures
from pipelines.serving.batch.predict_tables import predict_tables
from pipelines.serving.export.export_folder import export
from pipelines.serving.http.openapi import openapi
from pipelines.serving.http.served_model import ServedModel
from pipelines.serving.model import Predictor, load_model
from pipelines.tasks.bind import build_task

pytestmark = pytest.mark.usefixtures("one_thread")

CLASSES, WIDTH, HEIGHT = ["disc", "square"], 96, 72
SPLITS = {"train": 36, "val": 8, "test": 8}
ROWS = sum(SPLITS.values())
Scene = tuple[np.ndarray, list[tuple[str, tuple[int, int, int, int]]]]
EDGES = ("left", "top", "right", "bottom")


def draw_scene(number: int) -> Scene:
    """Noise with a red disc, a blue square, or both; and edges of their boxes from 0, the last ones outside."""
    random = np.random.default_rng(number)
    pixels = random.integers(20, 60, (HEIGHT, WIDTH, 3)).astype(np.uint8)
    x, y = np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT))
    boxes = []
    for place, name in enumerate(CLASSES):
        if number % 3 in (2, place):
            side = int(random.integers(20, 31))
            x0, y0 = int(random.integers(0, WIDTH // 2 - side)) + place * WIDTH // 2, int(random.integers(0, HEIGHT - side))
            inside = (abs(x - x0 - side / 2 + 0.5) < side / 2) & (abs(y - y0 - side / 2 + 0.5) < side / 2)
            if name == "disc":
                inside &= (x - x0 - side / 2 + 0.5) ** 2 + (y - y0 - side / 2 + 0.5) ** 2 < side**2 / 4
            pixels[inside] = (220, 40, 40) if name == "disc" else (40, 40, 220)
            boxes.append((name, (x0, y0, x0 + side, y0 + side)))
    return pixels, boxes


def jpeg(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    PIL.Image.fromarray(pixels).save(file, "JPEG", quality=95)
    return file.getvalue()


def voc(scene: Scene, width: int = WIDTH) -> str:
    objects = [
        f"<object><name>{name}</name><bndbox><xmin>{edges[0] + 1}</xmin><ymin>{edges[1] + 1}</ymin><xmax>{edges[2]}</xmax>"
        f"<ymax>{edges[3]}</ymax></bndbox></object>"
        for name, edges in scene[1]
    ]
    return f"<annotation><size><width>{width}</width><height>{HEIGHT}</height></size>{''.join(objects)}</annotation>"


def write_files(folder: Path) -> None:
    """As the pipeline of blood cells has them; and a picture without boxes, boxes without a picture, boxes of an unknown class, those of a
    picture of another size, and a picture of no split."""
    for name in ("JPEGImages", "Annotations", "ImageSets"):
        (folder / name).mkdir(parents=True)
    scenes = [draw_scene(number) for number in range(ROWS + 5)]
    files = [voc(scene) for scene in scenes]
    files[ROWS + 2] = files[2].replace("disc", "ring")
    files[ROWS + 3] = voc(scenes[ROWS + 3], WIDTH + 1)
    for number, (scene, text) in enumerate(zip(scenes, files, strict=True)):
        if number != ROWS:
            (folder / f"Annotations/{number}.xml").write_text(text)
        if number != ROWS + 1:
            (folder / f"JPEGImages/{number}.jpg").write_bytes(jpeg(scene[0]))
    names = iter(range(ROWS))
    for split, count in SPLITS.items():
        numbers = [next(names) for _ in range(count)] + (list(range(ROWS, ROWS + 4)) if split == "train" else [])
        (folder / f"ImageSets/{split}.txt").write_text("".join(f"{number}\n" for number in numbers))


@pytest.fixture(scope="module")
def trained_slice(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Slice:
    folder = tmp_path_factory.mktemp("boxes")
    write_files(folder)
    tables = {"images": "JPEGImages", "boxes": "Annotations", "splits": "ImageSets"}
    target = {"shape": [48, 64], "classes": CLASSES, "most": 5}
    flags = {"dataset.features.image.shape": [3, 48, 64], **{f"dataset.target.boxes.{name}": value for name, value in target.items()}}
    small = {"task.width": 8, "task.stages": 3, "task.head": 16, "train.epochs": 14, "train.global_batch": 4, "train.lr": 1e-2}
    return fit("blood_cells", folder, tables, {**flags, **small, "export.max_batch_rows": 4})


def test_rows_without_a_partner_or_with_unfit_boxes_are_quarantined(trained_slice: Slice) -> None:
    assert trained_slice.manifest.quarantined == {
        "has boxes": 1,
        "has an image": 1,
        "has a split": 1,
        "boxes: boxes cannot encode a value: the class ring is none of ['disc', 'square']": 1,
        "boxes: boxes cannot encode a value: it is for … pixels, but its image has …": 1,
    }
    rows = {name: split.rows for name, split in trained_slice.manifest.splits.items()}
    assert rows == {"train": SPLITS["train"], "validation": SPLITS["val"], "test": SPLITS["test"]}


def test_training_finds_objects(trained_slice: Slice) -> None:
    metrics = trained_slice.result.metrics
    assert float(metrics["test/map_50"]) > 0.7
    assert float(metrics["test/map_50"]) == pytest.approx((float(metrics["test/map_50_disc"]) + float(metrics["test/map_50_square"])) / 2)


def test_a_served_model_takes_files_and_answers_with_boxes(trained_slice: Slice) -> None:
    version = open_version(trained_slice.config.dataset.path, trained_slice.config.data_identity)
    task = build_task(trained_slice.config.task, version.manifest)
    (batch,) = Loader(version, "test", Order(1, 64, shuffle=False, remainder="keep"))
    evaluated = task.predict(trained_slice.strategy.predict(batch))
    files = [(Path(trained_slice.config.source.tables["images"].paths[0]) / f"{number}.jpg").read_bytes() for number in range(ROWS)]
    model = load_model(trained_slice.config.tracking.uri, trained_slice.model)
    served = model.predict(pd.DataFrame({"image": [*files, b"no picture"]}))
    assert served["refused"].notna().tolist() == [False] * ROWS + [True]
    counts = [[int(values[f"count_{name}"]) for name in CLASSES] for _, values in served.iloc[:ROWS].iterrows()]
    expected = [[sum(name == other for other, _ in draw_scene(number)[1]) for name in CLASSES] for number in range(ROWS)]
    assert np.mean([count == true for count, true in zip(counts, expected, strict=True)]) > 0.7
    texts = {json.dumps([np.round(row[name], 4).tolist() for name in (*EDGES, "scores")]) for _, row in served.iloc[:ROWS].iterrows()}
    rows = [json.dumps([np.round(evaluated[name][row], 4).tolist() for name in (*EDGES, "scores")]) for row in range(len(batch["image"]))]
    assert set(rows) <= texts and len(true_boxes(batch["boxes"])) == SPLITS["test"]


@pytest.mark.parametrize("min_score", [0.3, 0.9999])
def test_answers_over_http_are_json_also_without_boxes(trained_slice: Slice, min_score: float) -> None:
    task, weights = trained_slice.config.task.model_copy(update={"min_score": min_score}), trained_slice.strategy.model.state_dict()
    served = ServedModel(Predictor(task, trained_slice.manifest, weights), "1", "digest", {})
    scene = next(scene for scene in map(draw_scene, range(100)) if len(scene[1]) == 2)
    request = [{"image": b64encode(content).decode()} for content in (jpeg(scene[0]), b"no picture")]
    ((answer, refused),) = json.loads(json.dumps(served.answers([request]), allow_nan=False))
    assert len(answer["classes"]) == len(answer["bottom"]) == sum(answer[f"count_{name}"] for name in CLASSES)
    assert (len(answer["classes"]) > 0) == (min_score < 0.5)
    assert refused["scores"] is None and refused["refused"]
    described = openapi(served, Endpoint(), needs_token=False)
    schema = described["paths"]["/invocations"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    kinds = schema["properties"]["predictions"]["items"]["properties"]
    assert kinds["left"]["anyOf"][0]["items"]["anyOf"][0] == {"type": "number"}
    assert kinds["classes"]["anyOf"][0]["items"]["anyOf"][0] == {"type": "string"}


@pytest.mark.full
def test_batch_prediction_writes_boxes_of_new_pictures(trained_slice: Slice, tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "new").mkdir()
    scenes = [draw_scene(number) for number in (100, 101, 102)]
    for number, (pixels, _) in enumerate(scenes):
        (tmp_path / f"new/{number}.jpg").write_bytes(jpeg(pixels))
        (tmp_path / f"new/{number}.xml").write_text("no boxes")
    (tmp_path / "test.txt").write_text("0\n1\n2\n")
    inputs = [f"images={tmp_path}/new/*.jpg", f"boxes={tmp_path}/new/*.xml", f"splits={tmp_path}/test.txt"]
    written = predict_tables(trained_slice.config, trained_slice.model, inputs, str(tmp_path / "out"), ["name"])
    rows = open_predictions(str(tmp_path / "out")).to_table().sort_by("name")
    assert written.rows_out == rows.num_rows == 3
    assert (
        str(rows.schema.field("left").type) == "list<element: double>" and str(rows.schema.field("classes").type) == "list<element: string>"
    )
    lengths = [{len(row[name]) for name in (*EDGES, "classes", "scores")} for row in rows.to_pylist()]
    assert [len(length) for length in lengths] == [1, 1, 1]


def test_the_page_shows_the_worst_rows_with_both_sorts_of_boxes(trained_slice: Slice) -> None:
    split = SplitEvaluation("test", trained_slice.evaluation.summary, trained_slice.evaluation.tables)
    (figure,) = draw_figures(split)
    assert figure.svg.startswith(b"<?xml") and figure.svg.count(b"<image") == 2 * len(split.tables["boxes"]["row"])
    assert "with the largest loss" in figure.caption and len(figure.svg) < 400_000
    (table,) = box_tables([split])
    assert [row[0] for row in table.rows] == CLASSES and all(row[1] > 2 for row in table.rows)


@pytest.mark.full
def test_an_export_predicts_the_same_boxes(trained_slice: Slice) -> None:
    folder = export(trained_slice.config, trained_slice.run_id, "onnx")
    report = {row["model"]: row for row in json.loads((folder / "parity.json").read_text())["rows"]}
    assert report["onnx"]["rows"] == SPLITS["test"] and report["onnx"]["max_difference"] < 1e-3
    assert report["onnx"]["map_50"] == pytest.approx(report["mlflow"]["map_50"], abs=1e-3)
    manifest, examples = (json.loads((folder / name).read_text()) for name in ("manifest.json", "examples.json"))
    assert manifest["answer"]["form"] == "pipelines.applications.detection.predicted_boxes:answer_boxes"
    assert set(examples["predictions"][0]) == {"classes", "scores", *EDGES, "count_disc", "count_square", "refused"}
    predict = dict[str, Any](__name__="predict", __file__=str(folder / "predict.py"))
    exec(compile((folder / "predict.py").read_text(), "predict.py", "exec"), predict)
    scene = next(scene for scene in map(draw_scene, range(100)) if len(scene[1]) == 2)
    (row,) = predict["Model"](folder).predict([{"image": jpeg(scene[0])}])
    model = load_model(trained_slice.config.tracking.uri, trained_slice.model)
    served = model.predict(pd.DataFrame({"image": [jpeg(scene[0])]})).iloc[0]
    assert row["classes"] == served["classes"].tolist() and row["scores"] == pytest.approx(served["scores"], abs=1e-4)
    assert len(row["scores"]) > 0


def coco_page() -> Any:
    """The config that the page about detection has for COCO's JSON."""
    page = (Path(__file__).parents[2] / "docs/how-to/detection.md").read_text()
    return next(yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "name: coco" in text)


@pytest.mark.full
def test_a_query_makes_boxes_of_coco_s_json(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    scenes = [draw_scene(number) for number in range(12)]
    scenes[4] = scenes[4][0], []
    for number, (pixels, _) in enumerate(scenes):
        (tmp_path / f"images/{number}.jpg").write_bytes(jpeg(pixels))
    boxes = [(number, name, edges) for number, (_, row_boxes) in enumerate(scenes) for name, edges in row_boxes]
    labels = {
        "info": {"year": 2026},
        "images": [{"id": 70 + number, "file_name": f"{number}.jpg", "width": WIDTH, "height": HEIGHT} for number in range(12)],
        "categories": [{"id": 9 - number, "name": name, "supercategory": "form"} for number, name in enumerate(CLASSES)],
        "annotations": [
            {"id": place, "image_id": 70 + number, "category_id": 9 - CLASSES.index(name), "iscrowd": 0, "segmentation": [[1.5, 2]],
             "bbox": [x0, y0, x1 - x0, y1 - y0]}
            for place, (number, name, (x0, y0, x1, y1)) in enumerate(boxes)
        ],
    }  # fmt: skip
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    config = coco_page()
    config["source"]["tables"]["files"]["path"] = f"{tmp_path}/images"
    config["source"]["tables"]["labels"]["path"] = f"{tmp_path}/labels.json"
    config["dataset"] |= {"path": f"{tmp_path}/data", "split": {"train": 0.6, "validation": 0.2, "test": 0.2}}
    config["dataset"]["features"]["image"]["shape"] = [3, HEIGHT, WIDTH]
    config["dataset"]["target"]["boxes"] |= {"shape": [HEIGHT, WIDTH], "classes": CLASSES, "most": 4}
    config["tracking"] = {"uri": f"sqlite:///{tmp_path}/mlflow.db"}
    file = tmp_path / "coco.yaml"
    file.write_text(json.dumps(config))
    loaded = load(file, {})
    manifest = run(loaded)
    assert not manifest.quarantined and sum(split.rows for split in manifest.splits.values()) == 12
    version = open_version(loaded.dataset.path, loaded.data_identity)
    rows = [
        row.tolist()
        for split in manifest.splits
        for batch in Loader(version, split, Order(1, 64, shuffle=False, remainder="keep"))
        for row in true_boxes(batch["boxes"])
    ]
    assert sorted(rows) == sorted([[CLASSES.index(name), *edges] for name, edges in row_boxes] for _, row_boxes in scenes)
