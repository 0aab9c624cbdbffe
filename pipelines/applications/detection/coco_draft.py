"""Drafts the config for images and a file of annotations as COCO has them (Lin et al. 2014)."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from pipelines.applications.detection.draft_parts import LabelledImages, draft_objects
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request
from pipelines.init.media.annotated import choose_folder, files_in
from pipelines.init.media.classes import refuse_target
from pipelines.init.media.contents import IMAGES, FolderContents, FoundFile, list_contents, spread
from pipelines.init.media.file_table import folder_table

MOST_BYTES = 256 * 2**20
"""The largest file of annotations that is read, since all of it is in memory."""
MOST_IMAGES = 100
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
            boxes={name: boxes[name] for name in spread(sorted(boxes.keys() & names), MOST_IMAGES)},
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
