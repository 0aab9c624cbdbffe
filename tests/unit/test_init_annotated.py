"""The first config of images with masks or boxes: what is drafted, what is assumed, and what is refused in one line."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from drafts import draft, refusal, valid_config, write

SIZE = (40, 30)
"""Width and height of the images."""
Change = Callable[[Path], Any]


def picture(mode: str = "RGB", size: tuple[int, int] = SIZE, form: str = "JPEG") -> bytes:
    content = BytesIO()
    PIL.Image.new(mode, size, 90 if mode == "L" else (90, 90, 90)).save(content, form)
    return content.getvalue()


def png(values: np.ndarray) -> bytes:
    content = BytesIO()
    PIL.Image.fromarray(values.astype(np.uint8)).save(content, "PNG")
    return content.getvalue()


def write_masks(folder: Path, rows: int = 24, values: tuple[int, ...] = (0, 7, 255), size: tuple[int, int] = SIZE) -> Path:
    mask = np.full(size[::-1], values[0])
    for place, value in enumerate(values[1:], 2):
        mask[place, :9] = value
    files: dict[str, bytes | str] = {f"images/{number}.jpg": picture(size=size) for number in range(rows)}
    return write(folder, files | {f"masks/{number}.png": png(mask) for number in range(rows)})


def xml(count: int, name: str = "cat", size: tuple[int, int] = SIZE) -> str:
    edges = "<xmin>3</xmin><ymin>4</ymin><xmax>20</xmax><ymax>25</ymax>"
    boxes = f"<object><name>{name}</name><bndbox>{edges}</bndbox></object>" * count
    return f"<annotation><size><width>{size[0]}</width><height>{size[1]}</height></size>{boxes}</annotation>"


def write_xml(folder: Path, rows: int = 24, lists: dict[str, range] | None = None) -> Path:
    files: dict[str, bytes | str] = {f"JPEGImages/{number}.jpg": picture() for number in range(rows)}
    files |= {f"Annotations/{number}.xml": xml(number % 3, "dog" if number % 2 else "cat") for number in range(rows)}
    names = {name: "".join(f"{number}\n" for number in numbers) for name, numbers in (lists or {}).items()}
    return write(folder, files | {f"ImageSets/Main/{name}.txt": text for name, text in names.items()})


def write_json(folder: Path, rows: int = 24, crowd: int = 0, width: int = 10) -> Path:
    box = {"category_id": 4, "bbox": [2, 3, width, 12.5], "iscrowd": 0}
    values = {
        "images": [{"id": number, "file_name": f"{number}.jpg", "width": 40, "height": 30} for number in range(rows)],
        "categories": [{"id": 4, "name": "cat"}, {"id": 9, "name": "never"}],
        "annotations": [{**box, "image_id": number // 2, "iscrowd": crowd * (number == 1)} for number in range(rows)],
    }
    files: dict[str, bytes | str] = {f"images/{number}.jpg": picture() for number in range(rows)}
    return write(folder, {**files, "annotations.json": json.dumps(values)})


def test_masks_of_the_names_of_images(tmp_path: Path) -> None:
    drafted = draft(write_masks(tmp_path))
    config = valid_config(drafted)
    assert drafted.sections["dataset"]["target"]["mask"] == {
        "encoder": "mask",
        "shape": [30, 40],
        "classes": ["background", "value_7", "value_255"],
        "values": [0, 7, 255],
        "image": "image",
    }
    assert drafted.sections["dataset"]["features"]["image"]["shape"] == [3, 30, 40]
    assert drafted.sections["dataset"]["split"] == {"train": 0.6, "validation": 0.2, "test": 0.2}, "a tenth of 24 may be none"
    assert drafted.sections["task"] == {"kind": "segmentation", "flips": [1], "depth": 2}
    assert config.dataset.key == ("name",) and config.source.expect == {
        "has an image": "image IS NOT NULL",
        "has a mask": "mask IS NOT NULL",
    }
    assert drafted.introduction == ("24 images with masks of 3 classes.",)
    assert drafted.assumptions == ("the value 0 of masks is taken for the background, as the most frequent: classes begin with it",)
    assert draft(tmp_path) == drafted


def test_large_masks_of_two_values_are_scaled_and_cut_into_patches(tmp_path: Path) -> None:
    drafted = draft(write_masks(tmp_path, values=(255, 0), size=(700, 600)))
    valid_config(drafted)
    mask = drafted.sections["dataset"]["target"]["mask"]
    assert (mask["shape"], mask["classes"], mask["values"]) == ([439, 512], ["background", "foreground"], [255, 0])
    assert mask["resize"] and drafted.sections["task"]["patch"] == [256, 256]


def test_boxes_in_xml_files(tmp_path: Path) -> None:
    drafted = draft(write_xml(tmp_path))
    config = valid_config(drafted)
    assert drafted.sections["dataset"]["target"]["boxes"] == {
        "encoder": "boxes",
        "shape": [30, 40],
        "classes": ["cat", "dog"],
        "most": 7,
        "image": "image",
    }
    assert drafted.sections["dataset"]["split"]["test"] == 0.2
    assert drafted.sections["task"]["stride"] == 8 and config.task.kind == "detection"
    assert "FULL OUTER JOIN" in config.source.sql


def test_lists_of_images_are_splits(tmp_path: Path) -> None:
    lists = {"train": range(12), "val": range(12, 18), "test": range(18, 24), "cat_train": range(12)}
    drafted = draft(write_xml(tmp_path, lists=lists))
    valid_config(drafted)
    assert drafted.sections["dataset"]["split"] == {"by": "split"}
    assert drafted.sections["source"]["tables"]["splits"]["path"] == f"{tmp_path}/ImageSets/Main/{{train,val,test}}.txt"
    assert "WHEN 'val.txt' THEN 'validation'" in drafted.sections["source"]["query"]


def test_a_list_for_training_and_one_for_the_test_leave_a_share_for_validation(tmp_path: Path) -> None:
    drafted = draft(write_xml(tmp_path, lists={"train": range(16), "test": range(16, 24)}))
    assert drafted.sections["dataset"]["split"] == {"by": "split", "validation": 0.1}


@pytest.mark.parametrize("crowd", [0, 1])
def test_boxes_in_a_json_file(tmp_path: Path, crowd: int) -> None:
    drafted = draft(write_json(tmp_path, crowd=crowd, width=10))
    config = valid_config(drafted)
    boxes = drafted.sections["dataset"]["target"]["boxes"]
    assert boxes["classes"] == ["cat"], "a class without a box would be learnt from nothing"
    assert drafted.sections["task"]["stride"] == 4, "the boxes are small"
    assert ("iscrowd = 0" in config.source.sql) == bool(crowd)
    assert drafted.introduction[0] == f"24 images with boxes of 1 classes: cat ({24 - crowd})."


def test_what_would_be_quarantined_is_said_and_allowed(tmp_path: Path) -> None:
    folder = write_xml(tmp_path, rows=40)
    write(folder, {"Annotations/1.xml": xml(1, size=(9, 9)), "Annotations/3.xml": xml(1, size=(9, 9))})
    drafted = draft(folder)
    assert drafted.sections["source"]["max_quarantined"] == 0.1
    assert "2 of 40 images that were tried are quarantined, 2 of them because of boxes: it is for 9x9 pixels" in drafted.assumptions[-1]


def test_images_without_masks_and_masks_without_images_are_told_and_allowed(tmp_path: Path) -> None:
    folder = write_masks(tmp_path, rows=40)
    for name in ("images/1.jpg", "masks/2.png", "masks/3.png"):
        (folder / name).unlink()
    drafted = draft(folder)
    assert drafted.sections["source"]["max_quarantined"] == 0.15
    assert drafted.assumptions[-2:] == (
        "images without a mask are quarantined: 2, such as 2",
        "masks without an image are quarantined: 1, such as 1",
    )


@pytest.mark.parametrize(
    ("make", "change", "message", "remedy"),
    [
        (
            write_masks,
            lambda folder: write_masks(folder, values=(*range(40),), size=(60, 50)),
            "save masks with a value",
            write_masks,
        ),
        (
            write_masks,
            lambda folder: write_masks(folder, values=(0,)),
            "if they are no masks, rename their folder",
            lambda folder: [(folder / name).rename(folder / new) for name, new in (("masks", "dogs"), ("images", "cats"))],
        ),
        (
            write_masks,
            lambda folder: [file.write_bytes(picture("RGB", form="PNG")) for file in folder.glob("masks/*")],
            "it has colours (RGB), not one number for each pixel; save masks as PNG files with a grey value for each class",
            write_masks,
        ),
        (
            write_masks,
            lambda folder: [file.unlink() for file in folder.glob("masks/?.png")],
            "14 images with a mask do not fill three splits; add some, until there are 20",
            write_masks,
        ),
        (
            write_masks,
            lambda folder: (folder / "images/3.jpeg").write_bytes(picture()),
            "such as images/3.jpeg and images/3.jpg; keep one file of each name (1 have more)",
            lambda folder: (folder / "images/3.jpeg").unlink(),
        ),
        (
            write_xml,
            lambda folder: (folder / "JPEGImages/3.jpeg").write_bytes(picture()),
            "such as JPEGImages/3.jpeg and JPEGImages/3.jpg; keep one file of each name (1 have more)",
            lambda folder: (folder / "JPEGImages/3.jpeg").unlink(),
        ),
        (
            write_json,
            lambda folder: (folder / "images/3.jpeg").write_bytes(picture()),
            "such as images/3.jpeg and images/3.jpg; keep one file of each name (1 have more)",
            lambda folder: (folder / "images/3.jpeg").unlink(),
        ),
        (
            write_xml,
            lambda folder: [file.write_text(xml(1, size=(9, 9))) for file in folder.glob("Annotations/?.xml")],
            "but its image has 40x30; correct those files",
            write_xml,
        ),
        (
            write_xml,
            lambda folder: [file.write_text(xml(1, size=(9, 9))) for file in folder.glob("Annotations/?.xml")],
            "or remove them",
            lambda folder: [file.unlink() for file in write_xml(folder, 40).glob("*/?.*")],
        ),
        (write_xml, lambda folder: [file.write_text(xml(0)) for file in folder.glob("Annotations/*")], "has a box; add boxes", write_xml),
        (write_xml, lambda folder: [file.write_text(xml(0)) for file in folder.glob("Annotations/*")], "or name another folder", None),
        (
            write_json,
            lambda folder: (folder / "more.json").write_bytes((folder / "annotations.json").read_bytes()),
            "annotations.json, more.json are files of annotations; name a folder that has one",
            lambda folder: (folder / "more.json").unlink(),
        ),
        (
            write_json,
            lambda folder: [file.unlink() for file in folder.glob("images/??.jpg")],
            "names 24 images, and no folder has half of them; add the images",
            write_json,
        ),
    ],
)
def test_data_that_no_model_can_learn_are_refused(
    tmp_path: Path, make: Change, change: Change, message: str, remedy: Change | None
) -> None:
    make(tmp_path)
    change(tmp_path)
    assert message in refusal(tmp_path)
    if remedy:
        remedy(tmp_path)
        draft(tmp_path)
