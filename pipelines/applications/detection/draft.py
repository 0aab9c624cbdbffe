"""Drafts the config for images with boxes: in XML files of Pascal VOC beside the images, or in one JSON file as COCO has it."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pipelines.applications.detection.encoders import Annotation, Boxes, read_voc
from pipelines.applications.detection.settings import MOST_BOXES, BoxesSettings
from pipelines.data.features.media_files import UnreadableError
from pipelines.data.sources.spark_sql import sql_text
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request
from pipelines.init.media.class_folders import SPLITS, refuse_target
from pipelines.init.media.folder_contents import IMAGES, FolderContents, FoundFile, SampledFiles, folder_table, list_contents, spread
from pipelines.init.media.images import (
    STEM,
    AnnotatedImages,
    AnnotatedRows,
    ChosenSettings,
    choose_folder,
    draft_annotated,
    files_in,
    image_choice,
    look_at_images,
    scale_size,
    train_settings,
)

LARGEST_SIDE = 320
SMALL_SIDE = 16
"""Pixels of the encoded image. If the shorter side of half of the boxes is below, the output has a cell for 4 pixels instead of 8."""


@dataclass(frozen=True)
class LabelledImages:
    """Images, and the boxes of each by the name of the image."""

    images: SampledFiles
    tables: dict[str, Any]
    query: str
    boxes: dict[str, Any]
    """Files or arrays as the encoder takes them; of a sample."""
    class_names: dict[str, list[str]]
    """The class of each box, by image."""
    sides: Sequence[float]
    """The shorter sides of boxes in pixels of their files."""
    rows: int
    splits: Sequence[str] = ()


def draft_objects(request: Request, labelled: LabelledImages) -> Draft:
    """The draft for images with boxes. Raises ConfigError if there is no box."""
    classes = Counter(name for names in labelled.class_names.values() for name in names)
    if not classes:
        raise ConfigError(f"{request.data}: none of the {labelled.rows} images has a box; add boxes, or name another folder")
    look = look_at_images(request.data, labelled.images)
    size = scale_size(look.height, look.width, LARGEST_SIDE)
    most_boxes = max(map(len, labelled.class_names.values()))
    encoder = _encoder(size, sorted(classes), most_boxes)
    faults = list(_faults(encoder, labelled))
    median_side = median(labelled.sides) * size[0] / look.height
    task = {"kind": "detection", "stride": 4 if median_side < SMALL_SIDE else 8, "flips": [1], "zoom": 0.3, "jitter": 0.2}
    listed = ", ".join(f"{name} ({count:,})" for name, count in classes.most_common(5)) + (", …" if len(classes) > 5 else "")
    return draft_annotated(
        request,
        AnnotatedImages(
            noun="images",
            unit="boxes",
            source={"tables": labelled.tables, "query": labelled.query},
            image=image_choice(look, (3, *size), LARGEST_SIDE),
            annotation=ChosenSettings(
                encoder, f"at most {most_boxes} boxes in one of {len(labelled.class_names):,} images, with {len(classes)} classes"
            ),
            task=ChosenSettings(task, f"half of the boxes have a shorter side of less than {median_side:.0f} pixels, as encoded"),
            train=train_settings(labelled.rows, images=10_000, most_epochs=60, batch=8, rate=2e-3),
            rows=AnnotatedRows(labelled.rows, max(1, len(labelled.boxes)), faults),
            splits=labelled.splits,
            introduction=(
                f"{labelled.rows:,} images with boxes of {len(classes)} classes: {listed}.",
                "Training needs faster-coco-eval: pip install 'lockstep-pipelines[detection]'",
            ),
        ),
    )


def _encoder(size: tuple[int, int], classes: Sequence[str], most_boxes: int) -> dict[str, Any]:
    """Settings of the encoder, with room for a quarter more boxes than an image of the sample has."""
    room = min(MOST_BOXES, most_boxes + max(5, most_boxes // 4))
    return {"encoder": "boxes", "shape": list(size), "classes": list(classes), "most": room, "image": "image"}


def _faults(encoder: dict[str, Any], labelled: LabelledImages) -> Iterable[str]:
    """Why ETL would refuse images of the sample."""
    boxes, contents = Boxes(BoxesSettings(**encoder), {}), {file.stem: file for file in labelled.images.files}
    for name, value in labelled.boxes.items():
        if fault := boxes.fault(value, labelled.images.read(contents[name])):
            yield f"boxes: {fault}"


MOST_FILES = 5_000
"""The most XML files that are read for classes."""
MOST_VOC_IMAGES = 100
"""The most images whose boxes are compared with them."""
_XML = (".xml",)


def draft_voc(request: Request) -> Draft | None:
    """Draft the config for a folder of images and one of XML files with their names. None for other data."""
    contents = list_contents(request.data)
    files = contents.select_endings(_XML)
    folders = {file.folder for file in files}
    images_folder = choose_folder(contents.select_endings(IMAGES), {file.stem for file in files})
    if contents.is_file or len(folders) != 1 or images_folder is None:
        return None
    refuse_target(request, "in the XML files")
    (folder,) = folders
    images = folder_table(contents, images_folder, files_in(contents, images_folder, IMAGES))
    boxes = folder_table(contents, folder, files, MOST_FILES)
    annotations = {file.stem: annotation for file in boxes.sample if (annotation := _read(boxes.read(file)))}
    stems = {file.stem for file in images.files}
    lists = _split_lists(contents, stems)
    sides = [min(box.edges[2] - box.edges[0], box.edges[3] - box.edges[1]) for read in annotations.values() for box in read.boxes]
    tables = {"images": images.settings, "boxes": boxes.settings}
    if lists:
        names = ",".join(file.stem for file in lists)
        path = f"{contents.path}/{lists[0].folder}/{{{names}}}.txt" if len(lists) > 1 else contents.place(lists[0])
        tables["splits"] = {"format": "text", "path": path, "file_column": "file"}
    return draft_objects(
        request,
        LabelledImages(
            images=images,
            tables=tables,
            query=_query(lists),
            boxes={file.stem: boxes.read(file) for file in spread(files, MOST_VOC_IMAGES) if file.stem in stems},
            class_names={name: [box.name for box in annotation.boxes] for name, annotation in annotations.items()},
            sides=sides,
            rows=sum(len(_lines(contents, file)) for file in lists) if lists else len({file.stem for file in files} & stems),
            splits=[split for split in ("train", "validation", "test") if split in {SPLITS[file.stem.lower()] for file in lists}],
        ),
    )


def _read(content: bytes) -> Annotation | None:
    """The boxes of a file; None if ETL refuses it."""
    try:
        return read_voc(content)
    except UnreadableError:
        return None


def _split_lists(contents: FolderContents, stems: set[str]) -> list[FoundFile]:
    """The files train.txt, val.txt and test.txt of one folder that list images; none if there is no list for training."""
    by_folder: dict[str, dict[str, FoundFile]] = {}
    for file in contents.select_endings((".txt",)):
        split = SPLITS.get(file.stem.lower())
        if split and (names := _lines(contents, file)) and 2 * len(stems & set(names)) > len(names):
            by_folder.setdefault(file.folder, {}).setdefault(split, file)
    lists = next((by_folder[folder] for folder in sorted(by_folder) if "train" in by_folder[folder]), {})
    return [lists[split] for split in ("train", "validation", "test") if split in lists] if len(lists) > 1 else []


def _lines(contents: FolderContents, file: FoundFile) -> list[str]:
    text = Path(contents.place(file)).read_bytes().decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _query(lists: list[FoundFile]) -> str:
    images, boxes = (f"(SELECT {STEM} AS name, content FROM {table}) AS {table}" for table in ("images", "boxes"))
    columns = "SELECT name, images.content AS image, boxes.content AS boxes"
    if not lists:
        return f"{columns}\nFROM {images}\nFULL OUTER JOIN {boxes} USING (name)"
    cases = " ".join(f"WHEN {sql_text(f'{file.stem}.txt')} THEN {sql_text(SPLITS[file.stem.lower()])}" for file in lists)
    names = f"(SELECT trim(value) AS name, CASE file {cases} END AS split\n  FROM splits WHERE trim(value) <> '') AS splits"
    return f"{columns}, split\nFROM {names}\nLEFT JOIN {images} USING (name)\nLEFT JOIN {boxes} USING (name)"


MOST_BYTES = 256 * 2**20
"""The largest file of annotations that is read, since all of it is in memory."""
MOST_COCO_IMAGES = 100
_KEYS = ("images", "annotations", "categories")
_QUERY = """\
WITH annotation AS (SELECT explode(annotations) AS of FROM labels),
  category AS (SELECT explode(categories) AS of FROM labels),
  picture AS (SELECT explode(images) AS of FROM labels),
  boxed AS (
    SELECT annotation.of.image_id, sort_array(collect_list(named_struct('class', category.of.name,
      'left', annotation.of.bbox[0], 'top', annotation.of.bbox[1],
      'right', annotation.of.bbox[0] + annotation.of.bbox[2], 'bottom', annotation.of.bbox[1] + annotation.of.bbox[3],
      'image_width', picture.of.width, 'image_height', picture.of.height))) AS boxes
    FROM annotation LEFT JOIN category ON category.of.id = annotation.of.category_id
    LEFT JOIN picture ON picture.of.id = annotation.of.image_id{condition} GROUP BY annotation.of.image_id)
SELECT element_at(split(picture.of.file_name, '/'), -1) AS name, files.content AS image, coalesce(boxed.boxes, array()) AS boxes
FROM picture LEFT JOIN (SELECT element_at(split(path, '/'), -1) AS name, content FROM files) AS files
  ON files.name = element_at(split(picture.of.file_name, '/'), -1)
LEFT JOIN boxed ON boxed.image_id = picture.of.id"""


def draft_coco(request: Request) -> Draft | None:
    """Draft the config for images and one JSON file of their boxes. None for other data. Raises ConfigError for several such files."""
    contents = list_contents(request.data)
    files = [] if contents.is_file or not contents.select_endings(IMAGES) else _annotation_files(contents)
    if not files:
        return None
    if len(files) > 1:
        listed = ", ".join(file.name for file, _ in files)
        raise ConfigError(f"{request.data}: {listed} are files of annotations; name a folder that has one of them beside its images")
    refuse_target(request, "in the file of annotations")
    (file, values), stems = files[0], {Path(image["file_name"]).stem for image in files[0][1]["images"]}
    folder = choose_folder(contents.select_endings(IMAGES), stems)
    if folder is None:
        raise ConfigError(f"{request.data}: {file.name} names {len(stems):,} images, and no folder has half of them; add the images")
    images = folder_table(contents, folder, files_in(contents, folder, IMAGES))
    boxes = _boxes(values)
    names = {image.stem for image in images.files}
    return draft_objects(
        request,
        LabelledImages(
            images=images,
            tables={"files": images.settings, "labels": _table(contents.place(file), values)},
            query=_QUERY.format(condition=" WHERE annotation.of.iscrowd = 0" if _has_crowds(values) else ""),
            boxes={name: boxes[name] for name in spread(sorted(boxes.keys() & names), MOST_COCO_IMAGES)},
            class_names={name: [box["class"] for box in of_image if box["class"]] for name, of_image in boxes.items()},
            sides=[min(box["right"] - box["left"], box["bottom"] - box["top"]) for of_image in boxes.values() for box in of_image],
            rows=len(stems & names),
        ),
    )


def _annotation_files(contents: FolderContents) -> list[tuple[FoundFile, dict[str, Any]]]:
    """The JSON files that have images, annotations with boxes, and categories."""
    files = []
    for file in contents.select_endings((".json",)):
        if file.bytes > MOST_BYTES:
            continue
        try:
            values = json.loads(Path(contents.place(file)).read_bytes())
        except ValueError:
            continue
        if isinstance(values, dict) and all(isinstance(values.get(key), list) for key in _KEYS) and _has_boxes(values):
            files.append((file, values))
    return files


def _has_boxes(values: dict[str, Any]) -> bool:
    """Whether the entries have the keys that the query reads, with values of their types."""
    return (
        all(isinstance(image, dict) and {"id", "file_name"} <= image.keys() for image in values["images"])
        and all(isinstance(category, dict) and {"id", "name"} <= category.keys() for category in values["categories"])
        and all(isinstance(box, dict) and {"image_id", "category_id"} <= box.keys() for box in values["annotations"])
        and all(_is_box(box.get("bbox")) for box in values["annotations"])
        and all(isinstance(image["file_name"], str) for image in values["images"])
        and all(isinstance(entry["id"], int) for key in ("images", "categories") for entry in values[key])
        and all(isinstance(box[key], int) for key in ("image_id", "category_id") for box in values["annotations"])
    )


def _is_box(edges: Any) -> bool:
    return isinstance(edges, list) and len(edges) == 4 and all(isinstance(edge, int | float) for edge in edges)


def _has_crowds(values: dict[str, Any]) -> bool:
    return any(annotation.get("iscrowd") for annotation in values["annotations"])


def _boxes(values: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The boxes of each image, by its name without an ending, as the query makes them."""
    names = {category["id"]: str(category["name"]) for category in values["categories"]}
    by_image = defaultdict(list)
    for annotation in values["annotations"]:
        if not annotation.get("iscrowd"):
            by_image[annotation["image_id"]].append((names.get(annotation["category_id"]), annotation["bbox"]))
    return {Path(image["file_name"]).stem: [_struct(box, image) for box in by_image[image["id"]]] for image in values["images"]}


def _struct(box: tuple[str | None, list[float]], image: dict[str, Any]) -> dict[str, Any]:
    name, (x, y, width, height) = box
    edges = {"left": x, "top": y, "right": x + width, "bottom": y + height}
    return {"class": name, **edges, "image_width": image.get("width"), "image_height": image.get("height")}


def _table(path: str, values: dict[str, Any]) -> dict[str, Any]:
    crowd = ", iscrowd int" if _has_crowds(values) else ""
    schema = (
        "images array<struct<id bigint, file_name string, width int, height int>>, categories array<struct<name string, id bigint>>, "
        f"annotations array<struct<image_id bigint, category_id bigint, bbox array<double>{crowd}>>"
    )
    return {"format": "json", "path": path, "options": {"multiLine": True}, "schema": schema}


DRAFTERS = (draft_voc, draft_coco)
