"""Drafts the config for images and Pascal VOC's XML files."""

from pathlib import Path

from pipelines.applications.detection.draft_parts import LabelledImages, draft_objects
from pipelines.applications.detection.voc import Annotation, read_voc
from pipelines.data.features.media.file_kinds import UnreadableError
from pipelines.data.sources.spark_sql import sql_text
from pipelines.init.draft import Draft, Request
from pipelines.init.media.annotated import STEM, choose_folder, files_in
from pipelines.init.media.classes import SPLITS, refuse_target
from pipelines.init.media.contents import IMAGES, FolderContents, FoundFile, list_contents, spread
from pipelines.init.media.file_table import folder_table

MOST_FILES = 5_000
"""The most XML files that are read for classes."""
MOST_IMAGES = 100
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
            boxes={file.stem: boxes.read(file) for file in spread(files, MOST_IMAGES) if file.stem in stems},
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
