"""Drafts the config for images with boxes: in XML files of Pascal VOC beside the images, or in one JSON file as COCO has it."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from pipelines.applications.detection.encoders import Box, Boxes, read_voc
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

LARGEST_SIDE, SMALL_SIDE = 320, 16
"""Pixels of the encoded image. If the shorter side of half of the boxes is below the second, the output has a cell for 4 pixels instead
of 8."""
MOST_FILES, MOST_VOC_IMAGES, MOST_COCO_IMAGES = 5_000, 100, 100
"""The most XML files that are read for classes, and the most images whose boxes are compared with them."""
MOST_BYTES = 256 * 2**20
"""The largest file of annotations that is read, since all of it is in memory."""
_XML = (".xml",)
_SPLITS = ("train", "validation", "test")
_KEYS = ("images", "annotations", "categories")
_COCO_QUERY = """\
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


def draft_objects(
    request: Request,
    images: SampledFiles,
    *,
    source: dict[str, Any],
    values: Mapping[str, Any],
    boxes: Mapping[str, Sequence[Box]],
    rows: int,
    splits: Sequence[str] = (),
) -> Draft:
    """The draft for images with `boxes`, by the names of the images and in pixels of their files; `values` are those of a sample, as the
    encoder takes them. A box without a class has no name. Raises ConfigError if no box has one."""
    class_names = [[box.name for box in boxes_of_image if box.name] for boxes_of_image in boxes.values()]
    classes = Counter(name for names in class_names for name in names)
    if not classes:
        raise ConfigError(f"{request.data}: none of the {rows} images has a box; add boxes, or name another folder")
    look = look_at_images(request.data, images)
    size = scale_size(look.height, look.width, LARGEST_SIDE)
    most_boxes = max(map(len, class_names))
    room = min(MOST_BOXES, most_boxes + max(5, most_boxes // 4))  # for a quarter more boxes than an image of the sample has
    encoder = {"encoder": "boxes", "shape": list(size), "classes": sorted(classes), "most": room, "image": "image"}
    encoder_reason = f"at most {most_boxes} boxes in one of {len(boxes):,} images, with {len(classes)} classes"
    encode, contents = Boxes(BoxesSettings(**encoder), {}), {file.stem: file for file in images.files}
    faults = [encode.fault(value, images.read(contents[name])) for name, value in values.items()]
    listed = ", ".join(f"{name} ({count:,})" for name, count in classes.most_common(5)) + (", …" if len(classes) > 5 else "")
    annotated = AnnotatedImages(
        noun="images",
        unit="boxes",
        source=source,
        image=image_choice(look, (3, *size), LARGEST_SIDE),
        annotation=ChosenSettings(encoder, encoder_reason),
        task=_choose_task(boxes, size[0], look.height),
        train=train_settings(rows, images=10_000, most_epochs=60, batch=8, rate=2e-3),
        rows=AnnotatedRows(rows, max(1, len(values)), [f"boxes: {fault}" for fault in faults if fault]),
        splits=splits,
        introduction=(
            f"{rows:,} images with boxes of {len(classes)} classes: {listed}.",
            "Training needs faster-coco-eval: pip install 'lockstep-pipelines[detection]'",
        ),
    )
    return draft_annotated(request, annotated)


def _choose_task(boxes: Mapping[str, Sequence[Box]], encoded_height: int, height: int) -> ChosenSettings:
    edges = [box.edges for boxes_of_image in boxes.values() for box in boxes_of_image]
    side = median(min(right - left, bottom - top) for left, top, right, bottom in edges) * encoded_height / height
    task = {"kind": "detection", "stride": 4 if side < SMALL_SIDE else 8, "flips": [1], "zoom": 0.3, "jitter": 0.2}
    return ChosenSettings(task, f"half of the boxes have a shorter side of less than {side:.0f} pixels, as encoded")


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
    annotations = {}
    for file in boxes.sample:
        with suppress(UnreadableError):  # ETL quarantines it
            annotations[file.stem] = read_voc(boxes.read(file)).boxes
    stems = {file.stem for file in images.files}
    lists = _split_lists(contents, stems)
    tables = {"images": images.settings, "boxes": boxes.settings}
    if lists:
        names = ",".join(file.stem for file in lists)
        path = f"{contents.path}/{lists[0].folder}/{{{names}}}.txt" if len(lists) > 1 else contents.place(lists[0])
        tables["splits"] = {"format": "text", "path": path, "file_column": "file"}
    return draft_objects(
        request,
        images,
        source={"tables": tables, "query": _voc_query(lists)},
        values={file.stem: boxes.read(file) for file in spread(files, MOST_VOC_IMAGES) if file.stem in stems},
        boxes=annotations,
        rows=sum(len(_lines(contents, file)) for file in lists) if lists else len({file.stem for file in files} & stems),
        splits=[SPLITS[file.stem.lower()] for file in lists],
    )


def _split_lists(contents: FolderContents, stems: set[str]) -> list[FoundFile]:
    """The files train.txt, val.txt and test.txt of one folder that list images; none if there is no list for training."""
    by_folder: dict[str, dict[str, FoundFile]] = {}
    for file in contents.select_endings((".txt",)):
        split = SPLITS.get(file.stem.lower())
        if split and (names := _lines(contents, file)) and 2 * len(stems & set(names)) > len(names):
            by_folder.setdefault(file.folder, {}).setdefault(split, file)
    lists = next((by_folder[folder] for folder in sorted(by_folder) if "train" in by_folder[folder]), {})
    return [lists[split] for split in _SPLITS if split in lists] if len(lists) > 1 else []


def _lines(contents: FolderContents, file: FoundFile) -> list[str]:
    text = Path(contents.place(file)).read_bytes().decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _voc_query(lists: list[FoundFile]) -> str:
    images, boxes = (f"(SELECT {STEM} AS name, content FROM {table}) AS {table}" for table in ("images", "boxes"))
    columns = "SELECT name, images.content AS image, boxes.content AS boxes"
    if not lists:
        return f"{columns}\nFROM {images}\nFULL OUTER JOIN {boxes} USING (name)"
    cases = " ".join(f"WHEN {sql_text(f'{file.stem}.txt')} THEN {sql_text(SPLITS[file.stem.lower()])}" for file in lists)
    names = f"(SELECT trim(value) AS name, CASE file {cases} END AS split\n  FROM splits WHERE trim(value) <> '') AS splits"
    return f"{columns}, split\nFROM {names}\nLEFT JOIN {images} USING (name)\nLEFT JOIN {boxes} USING (name)"


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
    structs = _structs_by_image(values)
    has_crowds = any(annotation.get("iscrowd") for annotation in values["annotations"])
    condition, crowd = (" WHERE annotation.of.iscrowd = 0", ", iscrowd int") if has_crowds else ("", "")
    schema = (
        "images array<struct<id bigint, file_name string, width int, height int>>, categories array<struct<name string, id bigint>>, "
        f"annotations array<struct<image_id bigint, category_id bigint, bbox array<double>{crowd}>>"
    )
    labels = {"format": "json", "path": contents.place(file), "options": {"multiLine": True}, "schema": schema}
    names = {image.stem for image in images.files}
    return draft_objects(
        request,
        images,
        source={"tables": {"files": images.settings, "labels": labels}, "query": _COCO_QUERY.format(condition=condition)},
        values={name: structs[name] for name in spread(sorted(structs.keys() & names), MOST_COCO_IMAGES)},
        boxes={
            name: [
                Box(struct["class"] or "", (struct["left"], struct["top"], struct["right"], struct["bottom"]))
                for struct in structs_of_image
            ]
            for name, structs_of_image in structs.items()
        },
        rows=len(stems & names),
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
        and all(isinstance(box.get("bbox"), list) and len(box["bbox"]) == 4 for box in values["annotations"])
        and all(isinstance(edge, int | float) for box in values["annotations"] for edge in box["bbox"])
        and all(isinstance(image["file_name"], str) for image in values["images"])
        and all(isinstance(entry["id"], int) for key in ("images", "categories") for entry in values[key])
        and all(isinstance(box[key], int) for key in ("image_id", "category_id") for box in values["annotations"])
    )


def _structs_by_image(values: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The boxes of each image, by its name without an ending, as the query makes them."""
    names = {category["id"]: str(category["name"]) for category in values["categories"]}
    by_image = defaultdict(list)
    for annotation in values["annotations"]:
        if not annotation.get("iscrowd"):
            by_image[annotation["image_id"]].append(annotation)
    structs_by_image = {}
    for image in values["images"]:
        structs = []
        for annotation in by_image[image["id"]]:
            x, y, width, height = annotation["bbox"]
            edges = {"left": x, "top": y, "right": x + width, "bottom": y + height}
            size = {"image_width": image.get("width"), "image_height": image.get("height")}
            structs.append({"class": names.get(annotation["category_id"]), **edges, **size})
        structs_by_image[Path(image["file_name"]).stem] = structs
    return structs_by_image


DRAFTERS = (draft_voc, draft_coco)
