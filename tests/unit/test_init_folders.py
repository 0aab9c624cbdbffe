"""The first config of folders of images: what is drafted, what is assumed, and what is refused in one line."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import PIL.Image
import pytest
from drafts import draft_config

from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request

Size = tuple[int, int]


def image(path: Path, size: Size = (10, 8), mode: str = "L") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.new(mode, size).save(path)


def images(folder: Path, classes: tuple[str, ...] = ("cat", "dog"), count: int = 12, size: Size = (10, 8), mode: str = "L") -> Path:
    for name in classes:
        for number in range(count):
            image(folder / name / f"{number}.png", size, mode)
    return folder


def draft(path: Path) -> Draft:
    return draft_config(Request(str(path), "", "pets"))


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        draft(path)
    return str(refused.value)


def test_images_in_class_folders(tmp_path: Path) -> None:
    pets = draft(images(tmp_path / "pets"))
    assert pets.sections["dataset"] == {
        "path": "data/pets",
        "split": {"train": 0.8, "validation": 0.1, "test": 0.1, "stratify": "class"},
        "features": {"image": {"encoder": "image", "shape": [1, 8, 10]}},
        "target": {"class": "label"},
    }
    assert pets.sections["source"]["expect"] == {"a known class": "class IN ('cat', 'dog')"}
    assert pets.introduction == ("24 images of 2 classes: cat (12), dog (12).",)
    assert draft(tmp_path / "pets") == pets


@pytest.mark.parametrize(
    ("size", "mode", "shape"),
    [((10, 8), "RGB", [3, 8, 10]), ((640, 480), "L", [1, 48, 64]), ((9, 9), "RGBA", [3, 9, 9]), ((300, 2), "L", [1, 4, 64])],
)
def test_the_shape_is_the_median_and_small_enough_for_the_network(tmp_path: Path, size: Size, mode: str, shape: list[int]) -> None:
    folder = images(tmp_path / "pets", size=size, mode=mode)
    image(folder / "cat" / "odd.png", (1_000, 1_000))
    assert draft(folder).sections["dataset"]["features"]["image"]["shape"] == shape


def test_folders_with_the_names_of_splits_are_the_splits(tmp_path: Path) -> None:
    images(tmp_path / "pets/train")
    images(tmp_path / "pets/val", count=2)
    pets = draft(tmp_path / "pets").sections
    assert pets["dataset"]["split"] == {"by": "split"}
    assert "CASE element_at(folders, -3) WHEN 'train' THEN 'train' WHEN 'val' THEN 'validation' END AS split" in pets["source"]["query"]


@pytest.mark.parametrize("prefix", ["", "pets-"])
def test_without_a_validation_folder_a_share_of_train_is_taken(prefix: str, tmp_path: Path) -> None:
    images(tmp_path / f"pets/{prefix}train")
    images(tmp_path / f"pets/{prefix}test", count=2)
    assert draft(tmp_path / "pets").sections["dataset"]["split"] == {"by": "split", "validation": 0.1}


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        ([f"{animal}.{number}" for animal in ("cat", "dog") for number in range(12)], {"cat", "dog"}),
        ([f"{breed}_{number}" for breed in ("Abyssinian", "american_bulldog") for number in range(12)], {"Abyssinian", "american_bulldog"}),
        ([f"{digit}_{person}_{number}" for digit in (3, 4) for person in ("ann", "bo") for number in range(6)], {"3", "4"}),
    ],
)
def test_the_class_may_stand_in_the_name(tmp_path: Path, names: list[str], classes: set[str]) -> None:
    for name in names:
        image(tmp_path / f"{name}.png")
    pets = draft(tmp_path)
    assert set(re.findall("'(.*?)'", pets.sections["source"]["expect"]["a known class"])) == classes
    (expression,) = re.findall(r"regexp_extract\(path, '(.*?)', 1\)", pets.sections["source"]["query"])
    matches = [re.search(expression.replace("\\\\", "\\"), f"file:/some/folder-1_a/{name}.png") for name in names]
    assert {match[1] for match in matches if match} == classes and all(matches)


def test_other_parts_of_the_names_are_told_since_people_would_stand_in_several_splits(tmp_path: Path) -> None:
    for name in [f"{digit}_{person}_{number}" for digit in (3, 4) for person in ("ann", "bo") for number in range(6)]:
        image(tmp_path / f"{name}.png")
    assert "another part of the names has 2 values (ann, bo)" in draft(tmp_path).assumptions[1]


def test_a_class_of_few_files_is_stratified_without_a_weight(tmp_path: Path) -> None:
    pets = draft(images(images(tmp_path, ("cat",), 60), ("dog",), 2))
    assert "class_weights" not in pets.sections["task"]
    assert pets.comments["dataset", "split"] == "dog has 2 rows only"


def test_classes_of_many_files_are_split_by_the_hash_alone(tmp_path: Path) -> None:
    assert "stratify" not in draft(images(tmp_path, count=50)).sections["dataset"]["split"]


def test_a_target_is_a_column_of_a_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--target is age, but .* is no table: the class is the folder of a file; leave --target out"):
        draft_config(Request(str(images(tmp_path)), "age", "pets"))
    assert draft_config(Request(str(tmp_path), "", "pets"))


def test_files_about_the_data_and_beside_the_classes_are_left_out_and_told(tmp_path: Path) -> None:
    folder = images(tmp_path / "pets", count=20)
    (folder / "README.md").write_text("pets")
    image(folder / "cover.png")
    pets = draft(folder)
    assert pets.sections["source"]["query"].endswith("WHERE class IN ('cat', 'dog')")
    assert [line for line in pets.assumptions if "cover.png" in line or "README.md" in line] == list(pets.assumptions)


def test_a_few_broken_images_are_quarantined_and_told(tmp_path: Path) -> None:
    folder = images(tmp_path / "pets")
    (folder / "cat" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    pets = draft(folder)
    assert pets.sections["source"]["max_quarantined"] == 0.08
    assert pets.assumptions == ("1 of 25 images cannot be decoded, such as cat/broken.png: quarantined",)


def _break_most(folder: Path) -> None:
    for file in folder.glob("*/1*.png"):
        file.write_bytes(b"no image")


def _remove(folder: Path, pattern: str) -> None:
    for file in folder.glob(pattern):
        file.unlink()


def _rename_in_latin_1(folder: Path) -> None:
    os.rename(folder / "cat", os.fsencode(folder) + b"/caf\xe9")


def _rename_back(folder: Path) -> None:
    os.rename(os.fsencode(folder) + b"/caf\xe9", folder / "cat")


def _move(folder: Path, pattern: str, target: str) -> None:
    (folder / target).mkdir(exist_ok=True)
    for file in folder.glob(pattern):
        file.rename(folder / target / file.name)


Change = Callable[[Path], object]


def _divide_masks(folder: Path) -> None:
    """Images and masks in folders of splits, for which no config is drafted."""
    (folder / "dog").rename(folder / "cat_masks")
    folder.rename(folder.parent / "train")
    for split in ("train", "test"):
        copytree(folder.parent / "train", folder / split)


@pytest.mark.parametrize(
    ("change", "message", "remedy"),
    [
        (lambda folder: _remove(folder, "*/*"), "no file in this folder; name a folder that has files", images),
        (lambda folder: _remove(folder, "dog/*"), "one class only, the folder cat; put the files of each class", images),
        (lambda folder: image(folder / "bird/0.png"), "class bird has 1 of the files", lambda folder: image(folder / "bird/1.png")),
        (lambda folder: image(folder / "bird/0.png"), "or remove the class", lambda folder: _remove(folder, "bird/*")),
        (lambda folder: _remove(folder, "*/?.png"), "4 files are too few to split; add some, until there are 20", images),
        (_break_most, "6 of 24 images cannot be decoded, such as cat/1.png; get the files again", images),
        (_break_most, "or remove those", lambda folder: _remove(images(folder, count=16), "*/1.png")),
        (
            lambda folder: (folder / "cat/notes.txt").write_text("one"),
            "two kinds of files, 24 images and 1 of .txt, such as cat/notes.txt; name a folder that has files of a single kind",
            lambda folder: _remove(folder, "*/*.txt"),
        ),
        (_rename_in_latin_1, "caf\\xe9/0.png' is not UTF-8, or has a control character or a colon; rename", _rename_back),
        (
            lambda folder: (folder / "cat").rename(folder / "cat\nand dog"),
            "cat\\nand dog/0.png' is not UTF-8, or has a control character",
            lambda folder: (folder / "cat\nand dog").rename(folder / "cat"),
        ),
        (
            lambda folder: _move(folder, "dog/?.png", "."),
            "10 files 0 folders deep, 14 files 1 folder deep; move them so that each class is a folder",
            lambda folder: _move(folder, "?.png", "dog"),
        ),
        (
            lambda folder: (folder / "dog").rename(folder / "cat_masks"),
            "12 masks have 1 value, such as 0, and 2 to 30",
            None,
        ),
        (_divide_masks, "cat_masks holds masks or boxes, not a class", None),
        (
            lambda folder: [file.rename(file.with_suffix(".webp")) for file in folder.glob("*/*")],
            "24 files of .webp, but the encoder image reads PNG and JPEG; convert",
            lambda folder: [file.rename(file.with_suffix(".png")) for file in folder.glob("*/*")],
        ),
    ],
)
def test_data_that_no_model_can_learn_are_refused_in_a_line(tmp_path: Path, change: Change, message: str, remedy: Change | None) -> None:
    folder = images(tmp_path / "pets")
    change(folder)
    text = refusal(folder)
    assert message in text and "\n" not in text
    if remedy:
        remedy(folder)
        assert draft(folder).sections["task"]["kind"] == "vision"


def test_a_file_outside_many_classes_is_moved(tmp_path: Path) -> None:
    folder = images(tmp_path, tuple(f"c{number}" for number in range(30)), 2)
    image(folder / "cover.png")
    assert "cover.png lies outside the folders of classes; move it" in refusal(folder)
    (folder / "cover.png").rename(folder / "c1/cover.png")
    assert draft(folder).introduction[0].startswith("61 images of 30 classes")


def test_a_path_that_is_a_pattern_in_a_config_is_refused(tmp_path: Path) -> None:
    images(tmp_path / "pets [new]")
    assert "which a config takes for a pattern; rename it" in refusal(tmp_path / "pets [new]")
    assert draft((tmp_path / "pets [new]").rename(tmp_path / "pets"))


@pytest.mark.parametrize("link", [".", "self", "nothing", "../.."])
def test_a_link_that_leads_back_or_nowhere_is_not_followed(link: str, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "table.csv").write_text("a,y\n" + "1,2\n3,5\n2,9\n1,5\n3,2\n" * 20)
    (tmp_path / "inner" / "self").symlink_to(link)
    assert draft_config(Request(str(tmp_path), "", "toy")).sections["dataset"]["target"] == {"y": "label"}
