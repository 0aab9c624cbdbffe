"""Rows that are erased by their keys: gone from every file of every version, and all else as it was; also after an interruption."""

import io
import json
import os
import random
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from pyarrow.fs import LocalFileSystem
from pyspark.sql import SparkSession
from stores import new_store
from waiting import wait_until

from pipelines.commands import erase_keys
from pipelines.config import Config, parse
from pipelines.data.loader.reader import Reader
from pipelines.data.versions import storage
from pipelines.data.versions.commit import Attempt
from pipelines.data.versions.erasures import dataset_lock
from pipelines.data.versions.manifest import SPLITS
from pipelines.data.versions.raw_inputs import read_raw_rows
from pipelines.data.versions.row_keys import read_keys
from pipelines.data.versions.rows_digest import rows_digest, sum_row_hashes
from pipelines.data.versions.versions import check_is_not_erased, open_version
from pipelines.errors import ConfigError, DatasetError
from pipelines.etl.make import make
from pipelines.etl.run import run
from pipelines.etl.splits.split_assignment import ROW, add_identity
from pipelines.lifecycle.clean.cleaning import clean_dataset
from pipelines.lifecycle.erasure import journal as journals
from pipelines.lifecycle.erasure.certificate import check_certificate
from pipelines.lifecycle.erasure.command import describe_erasure
from pipelines.lifecycle.erasure.erase import erase_rows, read_grace
from pipelines.lifecycle.erasure.erased_keys import HashedKey, hash_keys
from pipelines.lifecycle.erasure.publish import publish
from pipelines.lifecycle.erasure.quarantine import find_records, text_matcher
from pipelines.lifecycle.erasure.spark_hashes import hash_by_spark
from pipelines.lifecycle.statements.croissant import write_croissant
from pipelines.report.evaluation import pack
from pipelines.runtime import progress
from pipelines.serving.batch.predictions_manifest import Predictions, commit_predictions, open_predictions
from pipelines.tracking.params_and_tags import origin_tags
from pipelines.tracking.run_heartbeat import HEARTBEAT, heartbeat

ROWS = 600
ERASED = (0, 7, 8, 250, 599)
"""Among them the smallest and the largest of the first version, a refused row, and one whose key a malformed record has."""
MARK = 424_242
"""Added to the key of each row to make values that occur nowhere else."""


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return new_store(tmp_path_factory.mktemp("tracking"))


def people(first: int, rows: int) -> str:
    """CSV lines: id, age (a few beyond 120), a number and a text that mark the row; one line in a hundred is malformed."""
    lines = []
    for number in range(first, first + rows):
        age = 130 if number % 50 == 8 else 20 + number % 60
        lines.append(f"{number},{age},{number + MARK}.5,name-{number + MARK},{'true' if number % 3 else 'false'}")
    lines.append(f"{first + 7},old,x,name-{first + 7 + MARK},true")
    return "\n".join(lines) + "\n"


def config(folder: Path, uri: str, **dataset: Any) -> Config:
    return parse(
        {
            "name": "people",
            "source": {
                "tables": {
                    "people": {
                        "format": "csv",
                        "path": f"{folder}/raw",
                        "schema": "id bigint, age int, income double, name string, left boolean",
                    }
                },
                "expect": {"plausible": "age <= 120"},
                "max_quarantined": 0.2,
            },
            "dataset": {
                "path": f"{folder}/data",
                "key": ["id"],
                "features": {"age": "standardize", "income": "identity", "number": {"encoder": "identity", "column": "id"}},
                "target": {"left": "binary"},
                "part_bytes": 1200,
                **dataset,
            },
            "task": {"kind": "tabular"},
            "tracking": {"uri": uri},
        },
        "test",
    )


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, uri: str, spark: SparkSession) -> Path:
    """A dataset with a version, a child that shares its parts, and a version of another config."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "raw").mkdir()
    (folder / "raw/0.csv").write_text(people(0, ROWS))
    run(config(folder, uri))
    run(config(folder, uri, features={"age": "minmax", "number": {"encoder": "identity", "column": "id"}}))
    (folder / "raw/1.csv").write_text(people(ROWS, 100))
    child = run(config(folder, uri), parent_name="previous")
    assert child.parent
    return folder


@pytest.fixture
def dataset(original: Path, tmp_path: Path) -> Path:
    """A copy, of which paths in the manifests are relative."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return tmp_path


def values_in(content: bytes, name: str) -> Iterator[str]:
    """Every value in a file as text: those of Parquet and of archives are decompressed."""
    if name.endswith(".parquet"):
        table = pq.read_table(io.BytesIO(content))
        for column in table.columns:
            yield from (str(value) for value in column.to_pylist())
        yield str(table.schema.metadata)
    elif name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for inner in archive.namelist():
                yield from values_in(archive.read(inner), inner)
    else:
        yield content.decode(errors="replace")


def files_with(folder: Path, texts: list[str]) -> list[str]:
    """The files below a folder in which one of the texts stands."""
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and any(text in value for value in values_in(path.read_bytes(), path.name) for text in texts)
    ]


def marks(numbers: tuple[int, ...]) -> list[str]:
    return [text for number in numbers for text in (f"{number + MARK}.5", f"name-{number + MARK}")]


def ids(root: Path) -> dict[str, list[int]]:
    """The keys of the rows of a version by split, as a training reads them, with all checksums compared."""
    version, numbers = open_version(str(root)), {}
    for split in SPLITS:
        reader = Reader(version, split)
        rows = [reader.read(number)["number"] for number in range(len(reader.groups))]
        numbers[split] = np.concatenate([np.asarray(values).ravel() for values in rows]).astype(int).tolist() if rows else []
    return numbers


def roots(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("data/*/manifest.json"))


def check_equal_without(before: dict[str, list[int]], root: Path, erased: tuple[int, ...] = ERASED) -> None:
    """That a version has the rows of `before`, in their order, without the erased ones, and that its files and digests agree."""
    now = ids(root)
    assert now == {split: [number for number in numbers if number not in erased] for split, numbers in before.items()}
    version = open_version(str(root))
    for split in SPLITS:
        reader = Reader(version, split)
        columns = version.columns
        total = sum(sum_row_hashes(columns, reader.read(number)) for number in range(len(reader.groups)))
        assert version.manifest.splits[split].rows_digest == rows_digest(total)
        assert sum(len(keys) for _, keys in read_keys(version.filesystem, version.root, version.split_row_groups(split))) == len(now[split])
        if split != "train":
            raw = read_raw_rows(version.filesystem, version.root, version.parts(split), range(len(now[split])))
            assert raw is not None and raw["id"].to_pylist() == now[split]
    counts = version.manifest.encoders["left"].class_counts
    assert not counts or sum(counts) == len(now["train"])


def test_erased_rows_are_in_no_file_and_all_others_are_where_they_were(dataset: Path, uri: str) -> None:
    settings = config(dataset, uri)
    before = {root: ids(root) for root in roots(dataset)}
    manifests = {root: open_version(str(root)).manifest for root in roots(dataset)}
    assert len(before) == 3 and files_with(dataset / "data", marks(ERASED))
    keys = [f"id={number}" for number in ERASED]

    preview = erase_rows(settings, keys)
    assert {*preview.versions} == {root.name for root in before} and not preview.certificates
    assert all(sum(version["rows"].values()) == 4 for version in preview.versions.values())
    assert sorted(version["quarantined"] for version in preview.versions.values()) == [0, 2, 2], "a child has its own refused rows"
    assert {root: ids(root) for root in roots(dataset)} == before, "a preview changes nothing"

    erasure = erase_rows(settings, keys, grace_seconds=0, is_confirmed=True)
    assert erasure.versions == preview.versions and not erasure.unsearchable and not erasure.waiting
    for root, numbers in before.items():
        check_equal_without(numbers, root)
        manifest = open_version(str(root)).manifest
        assert manifest.digest != manifests[root].digest and manifest.erasures[-1].digest_before == manifests[root].digest
        assert manifest.quarantined == manifests[root].quarantined and "erasure" in manifest.notes[-1]
    assert files_with(dataset / "data", marks(ERASED)) == []
    assert files_with(Path(uri.removeprefix("sqlite:///")).parent / "mlartifacts", marks(ERASED)) == []
    (certificate,) = erasure.certificates
    filesystem, folder = storage.locate(settings.dataset.path)
    assert check_certificate(filesystem, folder, certificate, [{"id": "7"}]) == []
    assert "other keys" in check_certificate(filesystem, folder, certificate, [{"id": "9"}])[0]
    assert list((dataset / "data/erasures").glob("*")) == [Path(certificate)]
    second = erase_rows(settings, keys, grace_seconds=0, is_confirmed=True)
    assert not second.has_rows and not second.certificates
    assert run(settings, parent_name="previous").erasures, "the same sources are up to date: rows do not come back"


def test_old_files_stay_until_the_grace_time_is_over(dataset: Path, uri: str) -> None:
    settings = config(dataset, uri)
    readers = [Reader(open_version(str(root)), "train") for root in roots(dataset)]
    erasure = erase_rows(settings, ["id=7"], grace_seconds=1000, is_confirmed=True)
    assert [len(reader.read(number)["age"]) > 0 for reader in readers for number in range(len(reader.groups))]
    assert next(iter(erasure.waiting.values())) > "20" and files_with(dataset / "data", marks((7,)))
    filesystem, folder = storage.locate(settings.dataset.path)
    assert "wait" in check_certificate(filesystem, folder, erasure.certificates[0])[0]
    journal = json.loads(next((dataset / "data/erasures").glob("*.journal")).read_text())
    assert journal["keys"] == journal["records"] == [], "the journal has no key any more"
    assert erase_rows(settings, []).waiting == erasure.waiting
    second = erase_rows(settings, ["id=9"], grace_seconds=1000, is_confirmed=True)  # whose old files are those of an erased version
    assert len(second.waiting) == 2
    run(settings, parent_name="previous")
    finished = erase_rows(settings, [], grace_seconds=0)
    assert not finished.waiting and files_with(dataset / "data", marks((7, 9))) == []
    assert all(check_certificate(filesystem, folder, path) == [] for path in finished.certificates) and len(finished.certificates) == 2
    for root in roots(dataset):
        check_equal_without(ids(root), root, (7, 9))


def test_a_cleaning_leaves_old_files_and_certificates_to_the_erasure(dataset: Path, uri: str) -> None:
    settings = config(dataset, uri)
    erase_rows(settings, ["id=7"], grace_seconds=7 * 86_400, is_confirmed=True)
    files = {path for path in (dataset / "data").rglob("*") if path.is_file()}
    long_ago = time.time() - 3 * 86_400
    for path in (dataset / "data").rglob("*"):
        os.utime(path, (long_ago, long_ago))
    assert [item for item in clean_dataset(settings, yes=True).items if item.goes] == []
    assert {path for path in (dataset / "data").rglob("*") if path.is_file()} == files
    erase_rows(settings, [], grace_seconds=0)
    assert files_with(dataset / "data", marks((7,))) == []


def test_a_cleaning_waits_for_etl_and_for_an_unfinished_erasure(dataset: Path, uri: str) -> None:
    settings = config(dataset, uri)
    with dataset_lock(settings.dataset.path):
        assert clean_dataset(settings).is_dry_run
        with pytest.raises(DatasetError, match="in use by an ETL"):
            clean_dataset(settings, yes=True)
    journals.begin(*storage.locate(settings.dataset.path), [{"id": "7"}], 0, [])
    with pytest.raises(DatasetError, match="unfinished"):
        clean_dataset(settings)


def test_an_increment_of_an_erased_version_has_its_rows(dataset: Path, uri: str, spark: SparkSession) -> None:
    settings = config(dataset, uri)
    erase_rows(settings, ["id=11"], grace_seconds=0, is_confirmed=True)
    (dataset / "raw/2.csv").write_text(people(ROWS + 100, 50))
    parent = open_version(settings.dataset.path, settings.data_identity)
    before = ids(Path(parent.root))
    child = run(settings, parent_name="previous")
    assert child.parent == parent.manifest.version and child.parent_digest == parent.digest
    now = ids(dataset / "data" / child.version)
    assert all({*before[split]} <= {*now[split]} for split in SPLITS) and all(11 not in numbers for numbers in now.values())


STEPS: dict[str, tuple[str, str]] = {
    "the first record": ("journal.Journal", "enter"),
    "a part": ("phases", "replace_part"),
    "a quarantine": ("phases", "replace_quarantine"),
    "an index": ("publish", "write_index"),
    "a manifest": ("publish.storage", "put_file"),
    "a file that is removed": ("phases.storage", "remove_file"),
    "the certificate": ("certificate.storage", "put_file"),
}


class Killed(BaseException):
    """In place of kill -9: no handler of ours takes it."""


FIRST_CALLS = [*((step, 1) for step in STEPS if step != "an index"), ("a manifest", 2), ("a file that is removed", 4)]
LATER_CALLS = [pytest.param(step, call, marks=pytest.mark.full) for step in STEPS for call in (1, 2, 4) if (step, call) not in FIRST_CALLS]


@pytest.mark.parametrize(("step", "call"), [*FIRST_CALLS, *LATER_CALLS])
def test_an_interrupted_erasure_goes_on(step: str, call: int, dataset: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(dataset, uri)
    before = {root: ids(root) for root in roots(dataset)}
    owner, name = STEPS[step]
    target = f"pipelines.lifecycle.erasure.{owner}.{name}"
    keys = [f"id={number}" for number in ERASED]
    with monkeypatch.context() as patch:
        patch.setattr(target, _kill_at(call, _resolve(target)))
        try:
            erase_rows(settings, keys, grace_seconds=0, is_confirmed=True)
        except Killed:
            for root in roots(dataset):
                assert ids(root)  # every version can be read at any moment
    erasure = erase_rows(settings, keys, grace_seconds=0, is_confirmed=True)
    assert not erasure.waiting
    for root, numbers in before.items():
        check_equal_without(numbers, root)
    assert files_with(dataset / "data", marks(ERASED)) == []
    filesystem, folder = storage.locate(settings.dataset.path)
    certificates = list((dataset / "data/erasures").iterdir())
    assert len(certificates) == 1 and check_certificate(filesystem, folder, str(certificates[0])) == []


def _resolve(target: str) -> Any:
    """The function of `pipelines.lifecycle.erasure.MODULE.NAME`, whose name may be that of a method or of another module there."""
    module, _, names = target.partition("erasure.")
    first, *inner = names.split(".")
    owner = resolve_name(f"{module}erasure.{first}")
    for name in inner:
        owner = getattr(owner, name)
    return owner


def _kill_at(call: int, function: Callable[..., Any]) -> Callable[..., Any]:
    calls = [0]

    def call_or_die(*arguments: Any, **keywords: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            raise Killed
        return function(*arguments, **keywords)

    return call_or_die


def test_an_etl_and_an_erasure_exclude_each_other(dataset: Path, uri: str) -> None:
    settings = config(dataset, uri)
    with dataset_lock(settings.dataset.path):
        assert erase_rows(settings, ["id=7"]).has_rows, "a preview needs no lock"
        with pytest.raises(DatasetError, match="in use by an ETL"):
            erase_rows(settings, ["id=7"], is_confirmed=True)
    with dataset_lock(settings.dataset.path, alone=True), pytest.raises(DatasetError, match="in use by an erasure"):
        run(settings)
    filesystem, folder = storage.locate(settings.dataset.path)
    journals.begin(filesystem, folder, [{"id": "7"}], 0, [])
    with pytest.raises(DatasetError, match="unfinished"):
        run(settings)
    assert len(erase_rows(settings, []).certificates) == 1
    assert run(settings, parent_name="previous").erasures


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("name=7", "does not declare"),
        ("7", "does not declare"),
        ("id=7,day=1", "'7,day=1'"),
        ("id=seven", "int64"),
        ("id=9" + "9" * 20, "int64"),
    ],
)
def test_a_wrong_key_is_refused(key: str, message: str, dataset: Path, uri: str) -> None:
    with pytest.raises(ConfigError, match=message):
        erase_rows(config(dataset, uri), [key])


def test_a_copy_of_a_version_loses_the_rows_too(dataset: Path, uri: str) -> None:
    settings = config(dataset, uri)
    child = next(root for root in roots(dataset) if open_version(str(root)).manifest.parent)
    shutil.copytree(child, dataset / "data/copy")
    before = {root: ids(root) for root in roots(dataset)}
    erase_rows(settings, ["id=7", f"id={ROWS + 9}"], grace_seconds=0, is_confirmed=True)
    for root, numbers in before.items():
        check_equal_without(numbers, root, (7, ROWS + 9))
    assert files_with(dataset / "data", marks((7, ROWS + 9))) == []


def test_a_key_that_only_some_versions_can_have_is_erased_there(dataset: Path, uri: str, spark: SparkSession) -> None:
    values = config(dataset, uri).model_dump(mode="json", by_alias=True, exclude_unset=True)
    values["source"]["query"] = "SELECT concat('A', id) AS id, age, left FROM people"
    values["dataset"]["features"] = {"age": "standardize"}
    with_texts, single = parse(values, "test"), dataset / "single"
    root = next(root for root in roots(dataset) if not open_version(str(root)).manifest.parent)
    shutil.copytree(root, single / root.name)
    run(with_texts)
    erasure = erase_rows(with_texts, ["id=A17"], grace_seconds=0, is_confirmed=True)
    assert len(erasure.versions) == 1 and not erase_rows(with_texts, ["id=A17"]).has_rows
    with pytest.raises(ConfigError, match="int64"):
        erase_rows(config(dataset, uri, path=str(single)), ["id=A17"])


def test_an_erasure_that_goes_on_says_what_it_could_not_search(dataset: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(dataset, uri)
    first = roots(dataset)[0]
    for folder in first.glob("keys-*"):
        shutil.rmtree(folder)

    def die(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.lifecycle.erasure.phases.publish", die)
        with pytest.raises(KeyboardInterrupt):
            erase_rows(settings, ["id=9"], grace_seconds=0, is_confirmed=True)
    with_other_key = config(dataset, uri, key=["age"])
    assert [*erase_rows(with_other_key, []).unsearchable] == [first.name]
    assert not erase_rows(settings, ["id=9"]).has_rows, "whatever key the config has by now"


def test_a_description_of_the_files_goes_with_them(dataset: Path, uri: str) -> None:
    settings = config(dataset, uri)
    path = Path(write_croissant(open_version(settings.dataset.path, settings.data_identity)))
    before = path.read_bytes()
    erase_rows(settings, ["id=9"], grace_seconds=0, is_confirmed=True)
    assert not path.exists()
    path.write_bytes(before)
    write_croissant(open_version(settings.dataset.path, settings.data_identity))
    now = json.loads(path.read_bytes())
    assert now["identifier"] != json.loads(before)["identifier"], "that of another content is replaced"
    assert all((dataset / "data" / file["contentUrl"]).is_file() for file in now["distribution"] if "contentUrl" in file)


def test_an_etl_that_reads_sources_again_warns_of_rows_that_come_back(
    dataset: Path, uri: str, caplog: pytest.LogCaptureFixture, spark: SparkSession
) -> None:
    settings = config(dataset, uri)
    parent = open_version(settings.dataset.path, settings.data_identity).manifest.parent
    erase_rows(settings, ["id=7"], grace_seconds=0, is_confirmed=True)
    run(settings, parent_name="previous")
    assert "come back" not in caplog.text
    run(settings, parent_name=parent)
    assert "rows that are still in them come back" in caplog.text


@pytest.mark.parametrize(
    "record",
    [
        '{"id": "K\\u00f6ln O\\"Brien a\\/b", "x": "abc"}',
        '"Köln O""Brien a/b",abc,true',
        'Ko\u0308ln O"Brien a/b',
    ],
)
def test_a_malformed_record_has_a_key_however_its_format_escapes_it(record: str) -> None:
    for value in ("Köln", 'O"Brien', "a/b", "Ko\u0308ln"):
        assert text_matcher([{"id": value}])(record), value
    assert not text_matcher([{"id": "Brie"}])(record) and not text_matcher([{"id": "Köln", "day": "7"}])(record)


def test_zeros_of_both_signs_are_one_key_among_refused_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "part.parquet")
    pq.write_table(pa.table({"record": ['{"id": -0.0}', '{"id": 1.0}'], "source": pa.nulls(2, pa.string())}), path)
    assert find_records(LocalFileSystem(), path, [{"id": 0.0}], [{"id": "0.0"}]) == (0,)


def test_a_version_that_changed_while_an_increment_was_made_is_refused(
    dataset: Path, uri: str, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """As on an object store, which has no lock."""
    settings = config(dataset, uri)
    (dataset / "raw/2.csv").write_text(people(ROWS + 200, 50))

    def erase_meanwhile(*arguments: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr("pipelines.lifecycle.erasure.erase.dataset_lock", lambda path, alone: nullcontext(True))
            erase_rows(settings, ["id=7"], is_confirmed=True)
        return make(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.etl.run.make", erase_meanwhile)
        with pytest.raises(DatasetError, match="is not the version that --from began with"):
            run(settings, parent_name="previous")
    child = run(settings, parent_name="previous")
    assert child.parent and 7 not in [number for numbers in ids(Path(settings.dataset.path) / child.version).values() for number in numbers]


def test_the_command_previews_erases_and_checks(
    dataset: Path, uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_way", ["text"])  # which another command may have changed
    settings = dataset / "people.yaml"
    settings.write_text(json.dumps(config(dataset, uri).model_dump(mode="json", by_alias=True, exclude_unset=True)))
    command = [str(settings), "--key", "id=7"]
    erase_keys("jobs/erase.py", command)
    assert "nothing was changed; add --yes to erase" in capsys.readouterr().out and files_with(dataset / "data", marks((7,)))
    with pytest.raises(ConfigError, match="--grace soon is no time"):
        erase_keys("jobs/erase.py", [*command, "--grace", "soon"])
    assert [read_grace(text) for text in ("90m", "12h", "7d", "0", "")] == [5400, 43_200, 604_800, 0, None]
    journals.begin(*storage.locate(f"{dataset}/data"), [{"id": "8"}], 0, [])
    erase_keys("jobs/erase.py", command)
    assert "is unfinished: run `lockstep erase" in capsys.readouterr().out
    erase_keys("jobs/erase.py", [*command, "--yes", "--grace", "0"])
    assert files_with(dataset / "data", marks((7, 8))) == []
    certificates = sorted((dataset / "data/erasures").iterdir())
    assert len(certificates) == 2 and str(certificates[0]) in capsys.readouterr().out
    with pytest.raises(DatasetError, match="give one of the files in the folder erasures"):
        erase_keys("jobs/erase.py", [str(settings), "--check", f"{dataset}/no.json"])
    copy = certificates[0].read_bytes()
    certificates[0].write_bytes(copy.replace(b"finished", b"Finished"))
    with pytest.raises(DatasetError, match="restore it from a copy"):
        erase_keys("jobs/erase.py", [str(settings), "--check", str(certificates[0])])
    certificates[0].write_bytes(copy)
    filesystem, folder = storage.locate(f"{dataset}/data")
    of_seven, of_plus_seven = (
        [path for path in certificates if not check_certificate(filesystem, folder, str(path), [{"id": text}])] for text in ("7", " +7")
    )
    assert len(of_seven) == 1 and of_plus_seven == of_seven
    erase_keys("jobs/erase.py", [str(settings), "--check", str(of_seven[0]), "--key", "id=7"])
    assert "all is as it says" in capsys.readouterr().out


def test_an_erasure_of_a_version_that_was_lost_goes_on_once_it_is_restored(
    dataset: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, root = config(dataset, uri), roots(dataset)[0]

    def lose(*arguments: Any) -> Any:
        (root / "manifest.json").rename(dataset / "copy.json")
        return publish(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.lifecycle.erasure.phases.publish", lose)
        with pytest.raises(DatasetError, match="has no manifest any more"):
            erase_rows(settings, ["id=250"], grace_seconds=0, is_confirmed=True)
    (dataset / "copy.json").rename(root / "manifest.json")
    erase_rows(settings, [], grace_seconds=0)
    assert files_with(dataset / "data", marks((250,))) == []


def test_versions_without_hashes_are_named(dataset: Path, uri: str) -> None:
    settings = config(dataset, uri)
    first = roots(dataset)[0]
    for folder in first.glob("keys-*"):
        shutil.rmtree(folder)
    erasure = erase_rows(settings, ["id=7"])
    assert first.name in erasure.unsearchable and "jobs/etl.py" in erasure.unsearchable[first.name]
    assert not {*erasure.versions} & {*erasure.unsearchable}
    shutil.rmtree(first)
    assert not erase_rows(settings, ["id=7"]).unsearchable, "without its folder"


def test_a_damaged_part_is_not_written_again_with_a_new_checksum(dataset: Path, uri: str) -> None:
    settings = config(dataset, uri)
    preview = erase_rows(settings, ["id=250"])
    for part in dataset.glob("data/*/data-*/*/*.parquet"):
        content = bytearray(part.read_bytes())
        content[6] ^= 1
        part.write_bytes(content)
    with pytest.raises(DatasetError, match="checksum"):
        erase_rows(settings, ["id=250"], grace_seconds=0, is_confirmed=True)
    assert preview.versions


def test_files_of_a_dead_attempt_go_too(dataset: Path, uri: str) -> None:
    settings = config(dataset, uri)
    (first, *_) = roots(dataset)
    part = next(first.glob("data-*/*/*.parquet"))
    for folder in (first, dataset / "data/0123456789ab"):
        (folder / "data-dead/split=train").mkdir(parents=True)
        shutil.copy(part, folder / "data-dead/split=train")
    erase_rows(settings, ["id=7"], grace_seconds=0, is_confirmed=True)
    assert not list(dataset.glob("data/*/data-dead"))


def test_artifacts_with_the_rows_go_and_models_are_named(dataset: Path, tmp_path: Path) -> None:
    uri = new_store(tmp_path / "tracking")
    settings = config(dataset, uri)
    version = open_version(settings.dataset.path, settings.data_identity)
    numbers = ids(Path(version.root))
    split = next(split for split in ("test", "validation") if numbers[split])
    client = MlflowClient(uri)
    experiment = client.create_experiment("people")
    run_ids = []
    for worst in (numbers[split][3], numbers[split][0]):
        tracked = client.create_run(experiment, tags={"dataset.digest": version.digest})
        run_ids.append(tracked.info.run_id)
        archive = pack(
            {"kind": "binary"}, {"worst": {"row": [numbers[split].index(worst)]}, "worst_rows": {"id": [worst]}, "classes": {"rows": [1]}}
        )
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            opened.extractall(tmp_path / "evaluation" / split)
        client.log_artifacts(tracked.info.run_id, str(tmp_path / "evaluation"), "evaluation")
        client.log_text(tracked.info.run_id, "a page", "report.html")
        client.log_text(tracked.info.run_id, version.manifest.to_json().decode(), "manifest.json")
    client.create_registered_model("people")
    registered = client.create_model_version("people", "runs:/model", run_ids[0])
    client.set_registered_model_alias("people", "champion", registered.version)
    client.set_tag(run_ids[1], HEARTBEAT, heartbeat())
    preview = erase_rows(settings, [f"id={numbers[split][3]}"])
    (line,) = [line for line in describe_erasure(preview, True, False, "people.yaml") if "stop it, since it will log more of them" in line]
    assert run_ids[1] in line and preview.running == [run_ids[1]]
    client.set_terminated(run_ids[1])
    erasure = erase_rows(settings, [f"id={numbers[split][3]}"], grace_seconds=0, is_confirmed=True)
    assert erasure.running == []
    names = {run_id: {entry.path for entry in client.list_artifacts(run_id, f"evaluation/{split}")} for run_id in run_ids}
    tables = {f"evaluation/{split}/{name}.parquet" for name in ("worst", "worst_rows")}
    assert not names[run_ids[0]] & tables and tables <= names[run_ids[1]], "only the run that shows the row"
    assert f"evaluation/{split}/classes.parquet" in names[run_ids[0]]
    (model,) = [model for model in erasure.models if model["run"] == run_ids[0]]
    assert (
        model["versions"] == [{"name": "people", "version": "1", "aliases": ["champion"]}]
        and model["endpoint"] == "models:/people@champion"
    )
    assert {model["run"] for model in erasure.models} == {*run_ids}
    with pytest.raises(DatasetError, match=f"run {run_ids[0]} was trained on .*; train again, and use that run"):
        check_is_not_erased(settings.dataset.path, version.digest, run_ids[0])
    trained_again = open_version(settings.dataset.path, settings.data_identity)
    check_is_not_erased(settings.dataset.path, trained_again.digest, run_ids[0])
    assert origin_tags(settings, trained_again)["dataset.erasures"] == Path(erasure.certificates[0]).stem


def test_hashes_of_keys_are_those_of_etl(spark: SparkSession) -> None:
    types = {"a": "bigint", "b": "int", "c": "smallint", "d": "tinyint", "e": "string", "f": "date", "g": "boolean"}
    keys = [
        {"a": "-17", "b": "5", "c": "-3", "d": "7", "e": "Zoë, née 'x'", "f": "1969-07-20", "g": "true"},
        {"a": str(2**63 - 1), "b": str(-(2**31)), "c": "0", "d": "-128", "e": "", "f": "2026-01-01", "g": "FALSE"},
    ]
    rows = spark.createDataFrame([tuple(key.values()) for key in keys], ", ".join(f"{name} string" for name in types))
    typed = rows.selectExpr(*(f"CAST({name} AS {kind}) AS {name}" for name, kind in types.items()))
    expected = [row[ROW] for row in add_identity(typed, tuple(types)).select(ROW).collect()]
    schema = typed.limit(0).toArrow().schema
    hashed = hash_keys(keys, schema, "test")
    assert [key.hash for key in hashed if isinstance(key, HashedKey)] == expected and hash_by_spark(keys, schema, "test") == hashed
    timed = spark.sql("SELECT timestamp'2026-01-01 12:00:00' AS at, CAST(1.50 AS decimal(9,2)) AS price")
    (row,) = add_identity(timed, ("at", "price")).select(ROW).collect()
    schema = timed.limit(0).toArrow().schema
    (key,) = hash_keys([{"at": "2026-01-01 12:00:00", "price": "1.5"}], schema, "test")
    assert isinstance(key, HashedKey) and key.hash == row[ROW]
    for wrong in ({"at": "noon", "price": "1.5"}, {"at": "2026-01-01", "price": "1.505"}):
        (error,) = hash_keys([wrong], schema, "test")
        assert isinstance(error, ConfigError) and "no such value" in str(error)


def test_outputs_of_predictions_that_are_named_lose_the_rows(dataset: Path, uri: str, tmp_path: Path) -> None:
    output = tmp_path / "predicted"
    attempt = Attempt(storage.locate(str(output))[0], f"{output}/0123456789ab", "first")
    file, refused = attempt.new_file("data-first", "part"), attempt.new_file("quarantine-first", "part")
    predicted = pa.table({"id": [6, 7, 8], "name": [f"name-{number + MARK}" for number in (6, 7, 8)], "left": [0.1, 0.2, 0.3]})
    pq.write_table(predicted, f"{attempt.root}/{file}")
    records = [json.dumps({"id": number, "name": f"name-{number + MARK}"}) for number in (7, 9)]
    pq.write_table(pa.table({"reason": ["age"] * 2, "record": records, "source": pa.nulls(2, pa.string())}), f"{attempt.root}/{refused}")
    rows = {"rows_in": 5, "rows_out": 3, "rows_parsed": 5}
    counts = {"files": {f"0123456789ab/{file}": 3}, "quarantine": {f"0123456789ab/{refused}": 2}, **rows}
    names = {"snapshot": "0123456789ab", "attempt": "first", "model": "models:/m", "model_digest": "m", "dataset_digest": "d"}
    commit_predictions(attempt, Predictions(**names, **counts, settings={}, inputs={}, refused={"age": 2}), {})
    erasure = erase_rows(config(dataset, uri), ["id=7"], 0, is_confirmed=True, predictions=[str(output)])
    assert erasure.predictions == {str(output): {"rows": 2, "without_key": []}}
    assert open_predictions(str(output)).to_table()["id"].to_pylist() == [6, 8] and files_with(output, marks((7,))) == []
    with pytest.raises(DatasetError, match="holds no predictions"):
        erase_rows(config(dataset, uri), ["id=9"], predictions=[str(dataset)])


@pytest.mark.full
def test_an_erasure_that_is_killed_at_any_moment_goes_on(original: Path, uri: str, tmp_path: Path) -> None:
    keys = [word for number in ERASED for word in ("--key", f"id={number}")]
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        shutil.copytree(original, folder)
        before = {root: ids(root) for root in roots(folder)}
        settings = folder / "people.yaml"
        settings.write_text(json.dumps(config(folder, uri).model_dump(mode="json", by_alias=True, exclude_unset=True)))
        command = [sys.executable, "jobs/erase.py", str(settings), *keys, "--yes", "--grace", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        journal = folder / "data/erasures"
        wait_until(lambda: process.poll() is not None or journal.exists(), "the erasure to begin", pause_seconds=0.001)  # noqa: B023
        time.sleep(random.random() * 0.6)
        process.kill()
        process.wait()
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        for root, numbers in before.items():
            check_equal_without(numbers, root)
        assert files_with(folder / "data", marks(ERASED)) == []
        (certificate,) = journal.iterdir()
        assert check_certificate(storage.locate(str(folder))[0], f"{folder}/data", str(certificate)) == []
