"""The first config of volumes with labels: what is drafted, what is assumed, and what is refused in one line."""

import gzip
import json
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from drafts import draft, draft_config, refusal, valid_config, write
from raw import raw

from pipelines.applications.segmentation import nifti
from pipelines.applications.segmentation.nifti import Grid
from pipelines.applications.segmentation.volume_draft import name_expression
from pipelines.applications.segmentation.volume_grid import LARGEST_VOXELS, PATCH_VOXELS, WHOLE_VOXELS, choose_grid
from pipelines.init.draft import Request

nibabel = pytest.importorskip("nibabel")

SHAPE = (12, 10, 8)
Change = Callable[[Path], Any]
MIRRORED = np.diag([-1.0, -1.0, 1.0, 1.0])
"""The axes go to the left, to the back and upwards."""
DECATHLON = {"labels": {"0": "background", "1": "front", "2": "back", "7": "both"}}
NNUNET = {"labels": {"background": 0, "front": 1, "back": 2, "both": 7}}


def volume(values: np.ndarray, spacing: tuple[float, float, float] = (1, 1, 1), affine: np.ndarray | None = None) -> bytes:
    return bytes(nibabel.Nifti1Image(values, np.diag([*spacing, 1.0]) if affine is None else affine).to_bytes())


def label_values(values: tuple[float, ...], shape: tuple[int, ...] = SHAPE, dtype: str = "uint8") -> np.ndarray:
    label = np.full(shape, values[0], dtype)
    for place, value in enumerate(values[1:], 1):
        label[place, :5] = value
    return label


def write_volumes(
    folder: Path,
    folders: tuple[str, str] = ("images", "labels"),
    rows: int = 24,
    values: tuple[float, ...] = (0, 1, 2),
    shape: tuple[int, ...] = SHAPE,
    channel: str = "",
    ending: str = ".nii",
    **files: bytes | str,
) -> Path:
    image, label = volume(np.ones(shape, np.float32)), volume(label_values(values))
    contents = {f"{folders[0]}/case_{number}{channel}{ending}": image for number in range(rows)}
    contents |= {f"{folders[1]}/case_{number}{ending}": label for number in range(rows)}
    packed = {name: gzip.compress(content, 1) if name.lower().endswith(".gz") else content for name, content in contents.items()}
    return write(folder, packed | files)


def rewrite(names: str, content: bytes) -> Change:
    return lambda folder: [file.write_bytes(content) for file in folder.glob(names)]


def remove(names: str) -> Change:
    return lambda folder: [file.unlink() for file in folder.glob(names)]


def to_png(folder: Path) -> None:
    picture = BytesIO()
    PIL.Image.new("L", (4, 4)).save(picture, "PNG")
    for file in folder.glob("labels/*"):
        file.unlink()
        file.with_suffix(".png").write_bytes(picture.getvalue())


def test_volumes_with_labels_of_equal_names(tmp_path: Path) -> None:
    write_volumes(tmp_path)
    write(
        tmp_path, {"images/case_3.nii": volume(np.ones((9, 9, 9)), (1, 1, 1)), "labels/case_3.nii": volume(label_values((0, 1), (9, 9, 9)))}
    )
    drafted = draft(tmp_path)
    config = valid_config(drafted)
    assert drafted.sections["dataset"] == {
        "path": "data/scans",
        "key": "name",
        "split": {"train": 0.6, "validation": 0.2, "test": 0.2},
        "features": {"image": {"encoder": "volume", "shape": [12, 10, 10]}},
        "target": {
            "label": {
                "encoder": "mask",
                "shape": [12, 10, 10],
                "classes": ["background", "value_1", "value_2"],
                "values": [0, 1, 2],
                "image": "image",
            }
        },
    }
    assert drafted.sections["task"] == {"kind": "segmentation", "depth": 1, "elastic": 2, "jitter": 0.3}
    assert "left and right of a body are not the same" in drafted.comments["task",]
    assert config.source.expect == {"has an image": "image IS NOT NULL", "has a label": "label IS NOT NULL"}
    assert config.source.sql.count("[.](?i:nii") == 2 and "FULL OUTER JOIN" in config.source.sql
    assert (drafted.sections["train"]["global_batch"], drafted.sections["train"]["epochs"]) == (4, 100)
    assert drafted.introduction[0] == "24 volumes with labels of 3 classes."
    assert drafted.assumptions == (
        "the value 0 of labels is taken for the background: classes begin with it",
        "no dataset.json names all values of labels: give the classes their names in dataset.target.label.classes",
    )
    assert "max_quarantined" not in drafted.sections["source"]
    assert draft(tmp_path) == drafted


@pytest.mark.parametrize("ending", [".nii", ".nii.gz", ".NII", ".Nii.GZ"])
@pytest.mark.parametrize(
    ("folders", "channel"),
    [(("imagesTr", "labelsTr"), ""), (("Task04/imagesTr", "Task04/labelsTr"), "_0000"), (("scans", "segmentations"), "")],
)
def test_layouts_of_challenges(tmp_path: Path, folders: tuple[str, str], channel: str, ending: str) -> None:
    write_volumes(tmp_path, folders, rows=20, channel=channel, ending=ending)
    above = f"{folders[0].rpartition('/')[0]}/".removeprefix("/")
    write(tmp_path, {f"{above}imagesTs/case_99{channel}{ending}": b"", f"{above}dataset.json": json.dumps(DECATHLON)})
    drafted = draft(tmp_path)
    valid_config(drafted)
    tables = drafted.sections["source"]["tables"]
    assert [table["path"] for table in tables.values()] == [f"{tmp_path}/{folder}" for folder in folders]
    assert tables["images"]["options"] == {"pathGlobFilter": f"*{channel}{ending}"}
    assert name_expression(channel) in drafted.sections["source"]["query"]
    label = drafted.sections["dataset"]["target"]["label"]
    assert (label["classes"], label["values"]) == (["background", "front", "back", "both"], [0, 1, 2, 7])
    assert len(drafted.assumptions) == 2 and "imagesTs/case_99" in drafted.assumptions[0]


@pytest.mark.parametrize(
    ("description", "classes"),
    [
        (NNUNET, ["background", "front", "back", "both"]),
        ({"labels": {"0": "background", "1": "front"}}, ["background", "value_1", "value_2"]),
        ({"labels": {"background": 0, "all": [1, 2], "back": 2}}, ["background", "value_1", "value_2"]),
        ({"labels": ["background", "front", "back"]}, ["background", "value_1", "value_2"]),
        ({"name": "scans"}, ["background", "value_1", "value_2"]),
    ],
)
def test_a_description_names_the_classes_if_it_names_all(tmp_path: Path, description: dict[str, Any], classes: list[str]) -> None:
    drafted = draft(write_volumes(tmp_path, **{"dataset.json": json.dumps(description)}))
    valid_config(drafted)
    assert drafted.sections["dataset"]["target"]["label"]["classes"] == classes


def test_endings_are_those_of_the_files(tmp_path: Path) -> None:
    """ETL reads what was drafted for: no `case_1.nii.json` beside a volume, and packed volumes beside others."""
    write_volumes(tmp_path, rows=20, **{"images/case_1.nii.json": "{}"})
    for file in tmp_path.glob("labels/case_1?.nii"):
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), 1))
        file.unlink()
    tables = draft(tmp_path).sections["source"]["tables"]
    assert [table["options"]["pathGlobFilter"] for table in tables.values()] == ["*.nii", "*{.nii,.nii.gz}"]
    for ending in (".nii", ".nii.gz", ".NII", ".Nii.GZ"):
        match = re.search(name_expression("").split("'")[1], f"a/case_1{ending}")
        assert match and match[1] == "case_1"


def test_channels_beside_the_first_and_other_files_are_left_out(tmp_path: Path) -> None:
    write_volumes(tmp_path, channel="_0000", **{"patients.csv": "a,b"})
    write(tmp_path, {f"images/case_{number}_0001.nii": b"" for number in range(24)})
    drafted = draft(tmp_path)
    assert drafted.sections["source"]["tables"]["images"]["options"] == {"pathGlobFilter": "*_0000.nii"}
    assert drafted.assumptions[:2] == (
        "files of other channels than _0000 are left out: 24, such as images/case_0_0001.nii",
        "files that are no volumes are left out: 1, such as patients.csv",
    )
    assert "max_quarantined" not in drafted.sections["source"]


def test_volumes_of_several_spacings_are_resampled_to_the_median(tmp_path: Path) -> None:
    write_volumes(tmp_path)
    for number in range(16):
        contents = np.ones(SHAPE, np.float32), label_values((0, 1, 2))
        for name, values in zip(("images", "labels"), contents, strict=True):
            write(tmp_path, {f"{name}/case_{number}.nii": volume(values, (0.5, 1, 2.5))})
    drafted = draft(tmp_path)
    config = valid_config(drafted)
    image, label = drafted.sections["dataset"]["features"]["image"], drafted.sections["dataset"]["target"]["label"]
    assert image["spacing"] == label["spacing"] == [0.5, 1, 2.5]
    assert image["shape"] == label["shape"] == [24, 10, 8], "the first 8 axes become twice as long"
    assert "that of the files is 0.5 to 2.5; this is their median" in drafted.comments["dataset", "features", "image"]
    assert config.task.kind == "segmentation"


@pytest.mark.parametrize(
    ("shape", "spacing", "expected", "patch"),
    [
        ((43, 59, 47), (1, 1, 1), None, None),
        ((64, 64, 64), (0.7, 0.7, 0.7), None, None),
        ((128, 128, 128), (1, 1, 1), None, (64, 64, 64)),
        ((160, 160, 20), (0.6, 0.6, 3.6), None, (112, 116, 20)),
        ((512, 512, 100), (0.8, 0.8, 5.0), (2.83, 2.83, 5.0), None),
        ((600, 600, 900), (0.5, 0.5, 0.5), None, None),
    ],
)
def test_large_volumes_are_made_coarser_and_learnt_in_parts(
    shape: tuple[int, ...], spacing: tuple[float, ...], expected: tuple[float, ...] | None, patch: tuple[int, ...] | None
) -> None:
    grid = choose_grid([Grid(shape, spacing)])
    unit = 2**grid.depth
    assert np.prod(grid.largest) <= LARGEST_VOXELS and all(side % unit == 0 for side in (*grid.shape, *(grid.patch or ())))
    assert all(large <= side < large + unit for large, side in zip(grid.largest, grid.shape, strict=True))
    assert (grid.patch is None) == (np.prod(grid.shape) <= PATCH_VOXELS)
    assert np.prod(grid.patch or 0) <= PATCH_VOXELS and grid.tile == (grid.patch if np.prod(grid.shape) > WHOLE_VOXELS else None)
    if np.prod(shape) <= LARGEST_VOXELS:
        assert (grid.largest, grid.spacing, grid.patch, grid.is_coarser) == (shape, None, patch, False)
    else:
        assert grid.is_coarser and grid.spacing and all(new >= old for new, old in zip(grid.spacing, spacing, strict=True))
        assert expected is None or grid.spacing == pytest.approx(expected, rel=0.05)


def test_a_draft_of_large_volumes_says_what_it_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_volumes(tmp_path)
    monkeypatch.setattr("pipelines.applications.segmentation.volume_grid.LARGEST_VOXELS", 200)
    monkeypatch.setattr("pipelines.applications.segmentation.volume_grid.PATCH_VOXELS", 50)
    monkeypatch.setattr("pipelines.applications.segmentation.volume_grid.WHOLE_VOXELS", 60)
    monkeypatch.setattr("pipelines.applications.segmentation.volume_draft.LABEL_VOXELS", 1)
    drafted = draft(tmp_path)
    valid_config(drafted)
    image = drafted.sections["dataset"]["features"]["image"]
    assert "values of 14 labels were not read" in drafted.assumptions[-2]
    assert image["spacing"][0] > 1 and drafted.sections["task"]["patch"] == drafted.sections["task"]["tile"]
    assert "lower spacing and raise shape in both encoders" in drafted.assumptions[-1]
    image |= {"spacing": [1, 1, 1], "shape": [12, 10, 8]}
    drafted.sections["dataset"]["target"]["label"] |= {"spacing": [1, 1, 1], "shape": [12, 10, 8]}
    valid_config(drafted)
    drafted.sections["dataset"]["target"]["label"]["classes"] = ["background", "front", "back"]
    valid_config(drafted)


def test_labels_turned_as_another_tool_stores_them_are_read(tmp_path: Path) -> None:
    write_volumes(tmp_path)
    affine = MIRRORED.copy()
    affine[:2, 3] = SHAPE[0] - 1, SHAPE[1] - 1
    rewrite("labels/*", volume(label_values((0, 1, 2)), affine=affine))(tmp_path)
    assert "max_quarantined" not in draft(tmp_path).sections["source"]


def test_what_would_be_quarantined_is_told_and_allowed(tmp_path: Path) -> None:
    write_volumes(tmp_path, rows=40)
    rewrite("labels/case_1.nii", volume(label_values((0, 0.5), dtype="float32")))(tmp_path)
    rewrite("labels/case_2.nii", volume(label_values((0, 0.5), dtype="float32")))(tmp_path)
    rewrite("images/case_3.nii", b"damaged")(tmp_path)
    rewrite("labels/case_4.nii", volume(label_values((0, 1)), affine=MIRRORED))(tmp_path)
    remove("images/case_5.nii")(tmp_path)
    remove("labels/case_6.nii")(tmp_path)
    remove("labels/case_7.nii")(tmp_path)
    drafted = draft(tmp_path)
    valid_config(drafted)
    assert drafted.sections["dataset"]["target"]["label"]["values"] == [0, 1, 2]
    assert drafted.sections["source"]["max_quarantined"] == 0.35
    assert drafted.assumptions[-3:] == (
        "4 of 37 volumes that were tried are quarantined, 2 of them because of label: it has the value 0.5, which is none of [0, 1, 2]",
        "volumes without a label are quarantined: 2, such as case_6",
        "labels without an image are quarantined: 1, such as case_5",
    )


@pytest.mark.parametrize(
    ("change", "message", "remedy"),
    [
        (to_png, "the labels in labels are .png files, and their images volumes; save each label as one", write_volumes),
        (
            remove("labels/*"),
            "NIfTI volumes without labels (24 such as images/case_0.nii); put volumes into a folder images",
            write_volumes,
        ),
        (
            lambda folder: [file.rename(file.with_name(file.name.replace("case", "label"))) for file in folder.glob("labels/*")],
            "each label with the name of its image",
            lambda folder: [file.rename(file.with_name(file.name.replace("label", "case"))) for file in folder.glob("labels/*")],
        ),
        (
            lambda folder: (folder / "labels").rename(folder / "others"),
            "their labels into a folder labels",
            lambda folder: (folder / "others").rename(folder / "labels"),
        ),
        (
            rewrite("images/*", volume(np.ones((*SHAPE, 2), np.float32))),
            "24 of 24 volumes cannot be read, such as images/case_0.nii: it has 12x10x8x2 voxels; a volume has three dimensions; save each",
            write_volumes,
        ),
        (
            rewrite("images/case_1?.nii", b"damaged"),
            "10 of 24 volumes cannot be read, such as images/case_10.nii: it is no NIfTI file; save each as one NIfTI file of three axes",
            lambda folder: remove("*/case_1?.nii")(write_volumes(folder, rows=34)),
        ),
        (
            rewrite("labels/*", volume(label_values((0, 0.5), dtype="float32"))),
            "no label can be read, such as labels/case_0.nii: it has the value 0.5, which is no whole number; save labels as NIfTI volumes",
            write_volumes,
        ),
        (
            rewrite("labels/*", volume(np.zeros(SHAPE, np.uint8))),
            "24 labels have 1 value, such as 0, and 2 to 255 can stand for classes; save labels with a value for each class",
            write_volumes,
        ),
        (
            rewrite("labels/*", volume(label_values((0, 1)), affine=MIRRORED)),
            "24 of 24 volumes with a label would be refused, most because of label: its orientation or place is another than its image's",
            write_volumes,
        ),
        (
            rewrite("images/*", volume(np.full(SHAPE, np.nan, np.float32))),
            "most because of image: it has NaN or ±∞; correct those files",
            write_volumes,
        ),
        (
            lambda folder: write(folder, {f"labels/case_{number}.nii.gz": b"" for number in (4, 7)}),
            "such as labels/case_4.nii and labels/case_4.nii.gz; keep one file of each name (2 have more)",
            remove("labels/*.gz"),
        ),
        (remove("labels/case_?.nii"), "14 volumes with a label do not fill three splits; add some", write_volumes),
    ],
)
def test_volumes_that_no_model_can_learn_are_refused(tmp_path: Path, change: Change, message: str, remedy: Change) -> None:
    write_volumes(tmp_path)
    change(tmp_path)
    assert message in refusal(tmp_path)
    remedy(tmp_path)
    draft(tmp_path)


def test_one_volume_is_refused(tmp_path: Path) -> None:
    write_volumes(tmp_path)
    assert "NIfTI volumes without labels (1 such as case_0.nii); put volumes" in refusal(tmp_path / "images" / "case_0.nii")


def test_volumes_of_other_formats_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, {f"{name}/{number}.nrrd": b"NRRD" for name in ("images", "labels") for number in range(20)})
    assert "40 files of .nrrd, but the encoder volume reads NIfTI; convert the volumes to .nii.gz" in refusal(folder)


def test_without_nibabel_the_remedy_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_volumes(tmp_path)
    monkeypatch.setattr(nifti, "has_nibabel", lambda: False)
    assert "a NIfTI file cannot be read: it needs nibabel, which is not installed; pip install" in refusal(tmp_path)


def test_the_hippocampus_is_drafted_as_its_config_has_it() -> None:
    folder = raw("hippocampus")
    drafted = draft_config(Request(str(folder), "", "hippocampus"))
    valid_config(drafted)
    dataset = drafted.sections["dataset"]
    assert dataset["features"]["image"] == {"encoder": "volume", "shape": [48, 64, 48]}
    assert dataset["target"]["label"]["values"] == [0, 1, 2] and dataset["target"]["label"]["shape"] == [48, 64, 48]
    assert drafted.sections["task"] == {"kind": "segmentation", "depth": 3, "elastic": 2, "jitter": 0.3}
    assert drafted.sections["source"]["max_quarantined"] == 0.02, "three files have no partner"
