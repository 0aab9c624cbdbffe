"""The first config of recordings, IDX files and texts: what is drafted, what is assumed, and what is refused in one line."""

import gzip
import tarfile
import wave
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drafts import draft_config

from pipelines.config import Config
from pipelines.config.load import load, parse
from pipelines.errors import LockstepError
from pipelines.init.draft import Draft, Request, write_config
from pipelines.launch.checks import check_before_etl

Change = Callable[[Path], object]
WORDS = ["the", "cat", "sat", "on", "a", "warm", "mat", "while", "two", "dogs", "ran"]


def draft(path: Path) -> Draft:
    return draft_config(Request(str(path), "", "some"))


def refusal(path: Path) -> str:
    with pytest.raises(LockstepError) as refused:
        draft(path)
    return str(refused.value)


def recording(path: Path, rate: int = 8_000, seconds: float = 0.5) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as sound:
        sound.setparams((1, 2, rate, 0, "NONE", ""))
        sound.writeframes(np.zeros(int(rate * seconds), "<i2").tobytes())


def recordings(folder: Path) -> Path:
    for name in ("no", "yes"):
        for number in range(12):
            recording(folder / name / f"{number}.wav")
    return folder


def idx_file(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + values.astype("u1").tobytes()))


def idx_files(folder: Path, splits: tuple[str, ...] = ("train", "t10k"), rows: int = 30) -> Path:
    for split in splits:
        idx_file(folder / f"{split}-images-idx3-ubyte.gz", np.zeros((rows, 5, 6)))
        idx_file(folder / f"{split}-labels-idx1-ubyte.gz", np.arange(rows) % 3)
    return folder


def sentences(
    path: Path, labels: tuple[str, ...] = ("0", "1"), rows: int = 40, form: str = "{label} {text}", encoding: str = "utf-8"
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [" ".join(WORDS[: 3 + number % 7]) + f" é{number}" for number in range(rows)]
    lines = [form.format(label=labels[number % len(labels)], text=text) for number, text in enumerate(texts)]
    path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
    return path


def documents(folder: Path, classes: tuple[str, ...] = ("neg", "pos"), count: int = 12) -> Path:
    for name in classes:
        for number in range(count):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / f"{number}.txt").write_text(f"{' '.join(WORDS)} {number}\n")
    return folder


def test_recordings_in_class_folders(tmp_path: Path) -> None:
    recording(recordings(tmp_path) / "no" / "long.wav", seconds=1.23)
    sections = draft(tmp_path).sections
    assert sections["dataset"]["features"] == {"recording": {"encoder": "log_mel", "sample_rate": 8_000, "seconds": 1.3, "mels": 40}}
    assert sections["source"]["tables"]["files"]["options"] == {"recursiveFileLookup": True, "pathGlobFilter": "*.wav"}


def test_short_recordings_are_masked_less_than_they_last(tmp_path: Path) -> None:
    for number in range(30):
        recording(tmp_path / f"{number % 2}_{number}.wav", seconds=0.2)
    task = draft(tmp_path).sections["task"]
    assert (task["shift_frames"], task["masked_frames"]) == (2, 2)


def test_an_archive_is_like_its_folder(tmp_path: Path) -> None:
    folder = recordings(tmp_path / "sounds")
    with tarfile.open(tmp_path / "sounds.tar.gz", "w:gz") as archive:
        archive.add(folder, "sounds")
    packed, unpacked = draft(tmp_path / "sounds.tar.gz"), draft(folder)
    assert packed.sections["dataset"] == unpacked.sections["dataset"]
    assert packed.sections["source"]["tables"] == {"files": {"format": "tar", "path": f"{tmp_path}/sounds.tar.gz"}}


def test_idx_files_and_their_splits(tmp_path: Path) -> None:
    sections = draft(idx_files(tmp_path)).sections
    assert sections["source"]["tables"]["test"]["path"] == [
        f"{tmp_path}/t10k-images-idx3-ubyte.gz",
        f"{tmp_path}/t10k-labels-idx1-ubyte.gz",
    ]
    assert sections["source"]["expect"] == {"a known class": "label BETWEEN 0 AND 2"}
    assert sections["dataset"]["features"]["image"] == {"encoder": "image", "shape": [1, 5, 6]}
    assert sections["dataset"]["split"] == {"by": "split", "validation": 0.1}
    assert draft(idx_files(tmp_path / "only", ("train",))).sections["dataset"]["split"]["train"] == 0.8


@pytest.mark.parametrize(
    ("labels", "form", "target", "query"),
    [
        (("0", "1"), "{label} {text}", "binary", "try_cast(substring_index(value, ' ', 1) AS int) AS label"),
        (("2", "10", "4"), "{label} {text}", "label", "try_cast(substring_index(value, ' ', 1) AS int) AS label"),
        (("__label__a", "__label__b"), "{label} {text}", "label", "SELECT substring_index(value, ' ', 1) AS label"),
        (("ham", "spam"), "{label}\t{text}", "label", "SELECT substring_index(value, '\\t', 1) AS label"),
        (("0", "1"), "{text}\t{label}", "binary", "try_cast(substring_index(value, '\\t', -1) AS int) AS label"),
    ],
)
def test_a_label_and_a_sentence_a_line(tmp_path: Path, labels: tuple[str, ...], form: str, target: str, query: str) -> None:
    sections = draft(sentences(tmp_path / "reviews.txt", labels, form=form)).sections
    assert sections["dataset"]["target"] == {"label": target}
    assert query in sections["source"]["query"]
    encoder = sections["dataset"]["features"]["sentence"]
    assert encoder["encoder"] == "terms" and encoder["characters"] == [3, 4, 5] and 30 < encoder["length"] < 200
    assert sections["dataset"]["features"]["words"] == {"encoder": "sequence", "length": 10, "column": "sentence"}
    assert sections["task"]["kind"] == "text"


def test_files_named_after_splits_are_the_splits(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        sentences(tmp_path / f"reviews.{split}.txt", encoding="utf-8" if split == "test" else "ISO-8859-1")
    reviews = draft(tmp_path / "reviews.train.txt")
    assert list(reviews.sections["source"]["tables"]) == ["train", "validation", "test"]
    assert reviews.sections["source"]["tables"]["validation"]["options"] == {"encoding": "ISO-8859-1"}
    assert "options" not in reviews.sections["source"]["tables"]["test"]
    assert reviews.sections["dataset"]["split"] == {"by": "split"}
    assert draft(tmp_path) == reviews


def test_dashes_of_windows_tell_its_encoding(tmp_path: Path) -> None:
    path = sentences(tmp_path / "reviews.txt", encoding="windows-1252")
    path.write_bytes(path.read_bytes().replace(b"cat", b"cat \x96"))
    assert draft(path).sections["source"]["tables"]["lines"]["options"] == {"encoding": "windows-1252"}


def test_texts_in_class_folders(tmp_path: Path) -> None:
    documents(tmp_path / "train")
    documents(tmp_path / "test", count=3)
    sections = draft(tmp_path).sections
    table = {"format": "text", "path": str(tmp_path), "file_column": "path", "options": {"wholetext": True}}
    assert sections["source"]["tables"] == {"files": table}
    assert sections["dataset"]["features"]["text"]["encoder"] == "terms"
    assert "element_at(folders, -2) AS class, element_at(folders, -3) AS split" in sections["source"]["query"]


@pytest.mark.parametrize("ending", ["", ".7", ".a1b2c3d4e5"], ids=["none", "a number", "a checksum"])
def test_texts_without_an_ending_in_class_folders_of_published_splits(ending: str, tmp_path: Path) -> None:
    """As mails and posts are published. A file about the data lies beside the folders."""
    for split, count in (("train", 12), ("test", 5)):
        for name in ("sci.space", "rec.autos"):
            (tmp_path / f"posts-{split}" / name).mkdir(parents=True)
            for number in range(count):
                (tmp_path / f"posts-{split}" / name / f"{59_000 + number}{ending}").write_text(f"From: {number}\n\n{' '.join(WORDS)}\n")
    (tmp_path / "README").write_text("about")
    result = draft(tmp_path)
    assert result.sections["task"] == {"kind": "text"} and result.sections["dataset"]["target"] == {"class": "label"}
    assert result.sections["source"]["tables"]["files"]["path"] == f"{tmp_path}/*/*/*"
    assert "WHEN 'posts-train' THEN 'train'" in result.sections["source"]["query"]
    assert result.sections["dataset"]["split"] == {"by": "split", "validation": 0.1}
    assert "files without an ending are texts, by the content of 34" in result.assumptions


@pytest.mark.parametrize("content", [b"1,2,3\n4,5,6\n", b"\0\1\2", b"x = 1\n"], ids=["tables", "bytes", "programs"])
def test_files_in_folders_that_are_no_texts_have_no_classes(content: bytes, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(12):
            (tmp_path / name / f"{number}{'.py' if content[:1] == b'x' else ''}").write_bytes(content * 100)
    if content[:1] == b"x":
        assert draft(tmp_path).sections["task"]["kind"] == "language"
    else:
        assert "neither a table nor a folder of a known kind" in refusal(tmp_path)


def test_texts_without_classes_in_folders_of_splits_are_not_mixed(tmp_path: Path) -> None:
    for split, count in (("train", 60), ("test", 9)):
        (tmp_path / f"wiki-{split}").mkdir()
        for number in range(count):
            (tmp_path / f"wiki-{split}" / f"{number}.txt").write_text(f"{' '.join(WORDS * 9)} {number}\n")
    sections = draft(tmp_path).sections
    assert {name: table["path"] for name, table in sections["source"]["tables"].items()} == {
        "train": f"{tmp_path}/wiki-train",
        "test": f"{tmp_path}/wiki-test",
    }
    assert sections["dataset"]["split"] == {"by": "split", "validation": 0.1}


def test_a_text_is_cut_into_training_and_validation(tmp_path: Path) -> None:
    (tmp_path / "play.txt").write_text("Enter the king.\n\nKing: " * 500)
    sections = draft(tmp_path).sections
    assert sections["dataset"]["split"] == {"by": "split"}
    assert sections["dataset"]["features"]["text"] == {"encoder": "characters", "length": 128}


def test_a_list_of_names_has_a_text_in_each_line(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("".join(f"name{number}\n" for number in range(500)))
    assert draft(tmp_path).sections["source"] == {
        "tables": {"texts": {"format": "text", "path": f"{tmp_path}/names.txt"}},
        "query": "SELECT value AS text FROM texts WHERE trim(value) <> ''",
    }


def test_programs_are_texts_without_classes(tmp_path: Path) -> None:
    for number in range(60):
        path = tmp_path / "/".join(["package"] * (number % 3)) / f"m{number}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("def f(x):\n    return x + 1\n" * 20)
    sections = draft(tmp_path).sections
    assert sections["dataset"]["split"] == {"train": 0.9, "validation": 0.05, "test": 0.05}
    assert sections["source"]["tables"]["texts"]["path"] == str(tmp_path)


def test_tables_and_pictures_are_left_to_others(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 2 3\n" * 1_000)
    assert "neither a table nor" in refusal(tmp_path) or draft(tmp_path).sections["task"]["kind"] == "tabular"


def _write(name: str, content: Any) -> Change:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content if isinstance(content, bytes) else str(content).encode())

    return change


def _remove(pattern: str) -> Change:
    return lambda folder: [file.unlink() for file in folder.glob(pattern)]


def _resample(folder: Path) -> None:
    for file in folder.glob("no/*.wav"):
        recording(file, 16_000)


def _cut_archive(folder: Path) -> None:
    with tarfile.open(folder / "all.tar", "w") as archive:
        archive.add(recordings(folder.parent / "sounds"), "sounds")
    content = (folder / "all.tar").read_bytes()
    (folder / "all.tar").write_bytes(content[: len(content) // 2 + 100])


def _mend_archive(folder: Path) -> None:
    with tarfile.open(folder / "all.tar", "w") as archive:
        archive.add(folder.parent / "sounds", "sounds")


def _empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("begin", "change", "message", "remedy"),
    [
        (recordings, _resample, "12 of 8,000 Hz, 12 of 16,000 Hz, such as no/0.wav; convert all of them", recordings),
        (recordings, _write("no/0.txt", "no"), "two kinds of files, 24 recordings and 1 of .txt", _remove("*/*.txt")),
        (_empty, _cut_archive, "is not a whole tar archive, says Python: unexpected end of data; get this file again", _mend_archive),
        (recordings, _write("no/x.wav", b""), "1 of 25 recordings are files without a byte, first no/x.wav; remove", _remove("no/x.wav")),
        (
            _empty,
            lambda folder: sentences(folder / "a.txt", encoding="utf-16"),
            "a.txt is UTF-16, in which ETL reads no single lines; save the file as UTF-8",
            lambda folder: sentences(folder / "a.txt"),
        ),
        (idx_files, _remove("train-*"), "no IDX file of images for training; add one with train in its name", idx_files),
        (idx_files, _remove("t10k-labels*"), "t10k-images-idx3-ubyte.gz has no file of labels; add one", idx_files),
        (
            idx_files,
            lambda folder: idx_files(folder, ("fashion-train",)),
            "two sets of images for train; move each set to a folder of its own",
            _remove("fashion*"),
        ),
        (
            idx_files,
            lambda folder: idx_file(folder / "t10k-images-idx3-ubyte.gz", np.zeros((30, 4, 4))),
            "have no bytes of one shape; make files of images of equal size",
            idx_files,
        ),
        (
            idx_files,
            lambda folder: idx_file(folder / "t10k-labels-idx1-ubyte.gz", np.arange(29) % 3),
            "has 29 labels, for 30 images; get both files again",
            idx_files,
        ),
        (
            _empty,
            lambda folder: [sentences(folder / name) for name in ("a.txt", "b.txt")],
            "2 data sets in a folder; name a file of one of them",
            _remove("a.txt"),
        ),
        (
            _empty,
            lambda folder: sentences(folder / "a.txt", ("0",)),
            "one class only, 0; name data",
            lambda folder: sentences(folder / "a.txt"),
        ),
        (documents, _write("pos/x.txt", b"\0\1\2" * 50), "pos/x.txt is no text; name a folder without this file", _remove("pos/x.txt")),
        (_empty, _write("a.txt", "too short"), "too few for a language model; add some", _write("a.txt", "long enough\n\n" * 200)),
    ],
)
def test_no_model_can_learn_from(tmp_path: Path, begin: Change, change: Change, message: str, remedy: Change) -> None:
    folder = tmp_path / "data"
    begin(folder)
    change(folder)
    text = refusal(folder)
    assert message in text and "\n" not in text
    remedy(folder)
    assert draft(folder)


def test_files_of_a_corpus_whose_names_tell_the_split_are_not_mixed(tmp_path: Path) -> None:
    folder = tmp_path / "wikitext"
    _empty(folder)
    for name, lines in (("train", 400), ("valid", 50), ("test", 50)):
        (folder / f"wiki.{name}.tokens").write_text("= A title =\n\nthe <unk> of it .\n" * lines)
    drafted = draft(folder)
    source, dataset = drafted.sections["source"], drafted.sections["dataset"]
    assert [(split, Path(table["path"]).name) for split, table in source["tables"].items()] == [
        ("train", "wiki.train.tokens"), ("validation", "wiki.valid.tokens"), ("test", "wiki.test.tokens"),
    ]  # fmt: skip
    assert dataset["split"] == {"by": "split"} and source["query"].count("UNION ALL") == 2
    write_valid(drafted, tmp_path / "some.yaml")
    (folder / "notes.txt").write_text("Written by hand.\n" * 200)
    assert list(draft(folder).sections["source"]["tables"]) == ["texts"], "a file without a split"


@pytest.mark.parametrize(
    "write",
    [
        recordings,
        idx_files,
        documents,
        lambda folder: sentences(folder / "a.txt"),
        lambda folder: sentences(folder / "train.tsv.txt", ("a", "b"), form="{label}\t{text}"),
        lambda folder: (_empty(folder) / "play.txt").write_text("Enter the king.\n\nKing: " * 500),
        lambda folder: (_empty(folder) / "names.txt").write_text("".join(f"name{number}\n" for number in range(500))),
    ],
)
def test_the_config_is_valid_and_its_task_fits(tmp_path: Path, write: Change) -> None:
    write(tmp_path / "data")
    write_valid(draft(tmp_path / "data"), tmp_path / "some.yaml")


def write_valid(drafted: Draft, file: Path) -> None:
    """Write the draft, whose config ETL takes and the file holds."""
    configs = list[Config]()

    def check(values: Mapping[str, Any]) -> tuple[str, ...]:
        configs.append(parse(dict(values), str(file)))
        check_before_etl(configs[-1])
        return ()

    assert write_config(drafted, file, check) == ()
    assert configs == [load(file)]
