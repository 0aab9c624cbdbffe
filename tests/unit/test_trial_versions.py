"""The dataset versions of trials with other features: found, made once, or refused where scores could not be compared. No Ray, no Spark."""

import json
import logging
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from versions import write_version
from waiting import wait_until

from pipelines.config import Config, parse
from pipelines.data.versions.folds import open_fold
from pipelines.data.versions.manifest import Erasure, Manifest, SourceSummary
from pipelines.data.versions.versions import Version, confirm, versions
from pipelines.errors import ConfigError, DatasetError, LockstepError, SourceError, TrackingError
from pipelines.tuning import etl_process, trial_versions
from pipelines.tuning.etl_process import EtlAnswer, EtlProcess
from pipelines.tuning.space import check_search
from pipelines.tuning.trial_versions import TrialVersions


def pipeline(folder: Path, encoder: str = "standardize", **task: Any) -> Config:
    values = {
        "name": "toy",
        "source": {"tables": {"points": {"format": "parquet", "path": "points"}}},
        "dataset": {"path": str(folder / "data"), "features": {"x": encoder, "y": "standardize"}, "target": {"label": "binary"}},
        "task": {"kind": "tabular", **task},
    }
    return parse(values, "toy")


def write(config: Config, rows: int = 8, raw: str = "as it was", **fields: Any) -> Version:
    """A version that ETL would make of the config, from raw files with these contents."""
    values = np.full(rows, float(len(config.dataset.features["x"].encoder)), "float32")
    part = {"x": values, "y": values, "label": np.arange(rows).astype("uint8") % 2}
    sources = {"points": SourceSummary(files=1, bytes=len(raw), digest=raw)}
    splits = {"train": [part], "validation": [part]}
    folder = Path(config.dataset.path)
    draft = folder.with_name("draft")
    version = write_version(draft, splits, cardinality={"label": 2}, identity=config.data_identity, sources=sources, **fields)
    folder.mkdir(exist_ok=True)
    root = Path(version.root).rename(folder / version.digest[:12])
    confirm(version.filesystem, str(root))
    return open_fold(config)


class FakeEtl:
    """An ETL that goes on until a test says what has come of it."""

    begun: list[dict[str, Any]]
    outcome: EtlAnswer | None

    def __init__(self, config: dict[str, Any]) -> None:
        self.begun.append(config)

    def answer(self) -> EtlAnswer | None:
        return self.outcome

    def end(self) -> None:
        pass


@pytest.fixture
def etl(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeEtl]]:
    FakeEtl.begun, FakeEtl.outcome = [], None
    monkeypatch.setattr(trial_versions, "EtlProcess", FakeEtl)
    yield FakeEtl


def test_a_trial_without_other_encoders_has_the_version_of_the_search(tmp_path: Path, etl: type[FakeEtl]) -> None:
    config = pipeline(tmp_path)
    version = write(config)
    with TrialVersions(config, version) as trials:
        assert trials.find(pipeline(tmp_path, hidden=[8])) is version
        without = trials.get(pipeline(tmp_path, use={"y": False}))
        assert [column.role for column in without.columns] == ["feature", "carried", "target"] and without.digest == version.digest
        assert trials.get(config) is version, "another trial has all features again"
    assert not etl.begun


def test_etl_makes_a_version_once(tmp_path: Path, etl: type[FakeEtl]) -> None:
    config, other, third = (pipeline(tmp_path, encoder) for encoder in ("standardize", "minmax", "robust"))
    own_version = write(config)
    with TrialVersions(config, own_version) as trials:
        assert trials.find(other) is None and trials.find(other) is None, "it is under way"
        assert trials.find(third) is None and len(etl.begun) == 1, "one at a time"
        other_version = write(other)
        etl.outcome = EtlAnswer()
        assert trials.get(other).digest == other_version.digest and trials.get(other) is trials.get(other)
        assert trials.find(third) is None and [values["dataset"]["features"]["x"]["encoder"] for values in etl.begun] == [
            "minmax",
            "robust",
        ]


def test_a_search_that_only_finds_a_version_leaves_the_newest_as_it_is(tmp_path: Path, etl: type[FakeEtl]) -> None:
    config, other = pipeline(tmp_path), pipeline(tmp_path, "minmax")
    own_version, other_version = write(config), write(other)
    assert versions(config.dataset.path)[0][0] == other_version.root, "as its user wanted"
    assert TrialVersions(config, own_version).get(other).digest == other_version.digest and not etl.begun
    assert versions(config.dataset.path)[0][0] == other_version.root


def test_a_version_that_the_process_of_a_search_makes_does_not_become_the_newest(tmp_path: Path) -> None:
    own_version, other, third = write(pipeline(tmp_path)), pipeline(tmp_path, "minmax"), pipeline(tmp_path, "robust")
    path = other.dataset.path
    etl_process.make_aside(path, lambda: write(other).manifest)
    assert versions(path)[0][0] == own_version.root and len(versions(path)) == 2

    def make_while_others_do() -> Manifest:
        manifest = write(third, rows=9).manifest
        write(pipeline(tmp_path, "normal_quantile"))
        return manifest

    etl_process.make_aside(path, make_while_others_do)
    assert versions(path)[0][1].identity == pipeline(tmp_path, "normal_quantile").data_identity, "whoever made it has it as the newest"
    empty = pipeline(tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    etl_process.make_aside(empty.dataset.path, lambda: write(empty).manifest)


def test_an_etl_that_fails_is_tried_once(tmp_path: Path, etl: type[FakeEtl]) -> None:
    config, other = pipeline(tmp_path), pipeline(tmp_path, "minmax")
    trials = TrialVersions(config, write(config))
    assert trials.find(other) is None
    etl.outcome = EtlAnswer("column x holds texts", "SourceError")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"ETL could not make its dataset version: column x holds texts"):
            trials.find(other)
    assert len(etl.begun) == 1 and trials.find(config) is not None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (EtlAnswer("MLflow is away", "TrackingError"), TrackingError),
        (EtlAnswer("data is in use by a job that removes files", "DatasetError"), DatasetError),
        (EtlAnswer("its process ended with exit code -9, and last wrote: nothing"), DatasetError),
    ],
    ids=["mlflow", "lock", "memory"],
)
def test_an_error_that_another_etl_may_not_have_ends_the_search(
    tmp_path: Path, etl: type[FakeEtl], answer: EtlAnswer, expected: type[LockstepError]
) -> None:
    """A failed trial would count as the worst, and change all that are proposed after it."""
    config, other = pipeline(tmp_path), pipeline(tmp_path, "minmax")
    trials = TrialVersions(config, write(config))
    assert trials.find(other) is None
    etl.outcome = answer
    with pytest.raises(expected, match=r"remove the cause, and begin the same search again, which goes on") as error:
        trials.find(other)
    assert answer.error in str(error.value) and type(error.value) is expected
    etl.outcome = None
    assert trials.find(other) is None and len(etl.begun) == 2, "the same command has it made"
    write(other)
    etl.outcome = EtlAnswer()
    trials.get(other)


def test_warnings_of_an_etl_are_logged(tmp_path: Path, etl: type[FakeEtl], caplog: pytest.LogCaptureFixture) -> None:
    config, other = pipeline(tmp_path), pipeline(tmp_path, "minmax")
    trials = TrialVersions(config, write(config))
    trials.find(other)
    write(other)
    etl.outcome = EtlAnswer(warnings=["a split is far from its share"])
    trials.get(other)
    assert caplog.messages == ["ETL of a trial: a split is far from its share"]


def answer_of_main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], make_version: Any) -> EtlAnswer:
    monkeypatch.setattr(etl_process, "make_version", make_version)
    monkeypatch.setattr(etl_process.sys, "path", [*sys.path])
    monkeypatch.setattr(etl_process.sys, "stdin", StringIO("{}"))
    logger = logging.getLogger("pipelines")
    handlers = [*logger.handlers]
    try:
        etl_process.main()
    finally:
        logger.handlers[:] = handlers
    return EtlAnswer(**json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("kind", [SourceError, TrackingError])
def test_an_etl_answers_with_the_class_of_its_error_and_its_warnings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: type[LockstepError]
) -> None:
    def fail(_: Any) -> None:
        logging.getLogger("pipelines.etl.run").warning("of %d rows", 3)
        raise kind("no such rows")

    answer = answer_of_main(monkeypatch, capsys, fail)
    assert answer == EtlAnswer("no such rows", kind.__name__, ["of 3 rows"]) and answer.is_of_trial == (kind is SourceError)
    assert answer_of_main(monkeypatch, capsys, lambda _: None) == EtlAnswer("", "", [])


def test_a_version_with_other_rows_is_refused(tmp_path: Path, etl: type[FakeEtl]) -> None:
    config, other = pipeline(tmp_path), pipeline(tmp_path, "minmax")
    own_version = write(config)
    write(other, rows=7)
    trials = TrialVersions(config, own_version)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"has 7 rows in split train, and the version of the search 8: .* set impute, as to median"):
            trials.find(other)
    median = pipeline(tmp_path).model_copy(update={"dataset": add_median(other)})
    other_version = write(median)
    assert trials.get(median).digest == other_version.digest


def add_median(config: Config) -> Any:
    features = {name: settings.model_copy(update={"impute": "median"}) for name, settings in config.dataset.features.items()}
    return config.dataset.model_copy(update={"features": features})


def test_a_version_of_other_raw_files_is_not_taken(tmp_path: Path, etl: type[FakeEtl]) -> None:
    config, other = pipeline(tmp_path), pipeline(tmp_path, "minmax")
    old = write(config)
    write(other, raw="changed since")
    trials = TrialVersions(config, old)
    assert trials.find(other) is None and len(etl.begun) == 1
    etl.outcome = EtlAnswer()
    with pytest.raises(
        DatasetError, match=r"raw files have changed since .* run jobs/etl.py with the config of the search, and search again"
    ):
        trials.find(other)
    new = write(pipeline(tmp_path), rows=9, raw="changed since")
    with pytest.raises(ConfigError, match="has 8 rows in split train"):
        TrialVersions(config, new).find(other)


ERASED = Erasure(certificate="one", digest_before="0" * 64, attempt_before="earlier", rows={"train": 1})


@pytest.mark.parametrize("is_of_parent", [False, True])
def test_features_are_not_searched_where_rows_were_erased(tmp_path: Path, is_of_parent: bool) -> None:
    def search(space: dict[str, Any]) -> Config:
        values = pipeline(tmp_path).model_dump(mode="json", by_alias=True, exclude_unset=True)
        return parse({**values, "tune": {"space": space}}, "toy")

    features, plain = {"dataset.features.x": {"choice": ["standardize", "minmax"]}}, {"task.hidden": {"choice": [[8], [16]]}}
    config = search(features)
    check_search(config)
    erased = write(config, erasures=(ERASED,))
    if is_of_parent:
        write(config, rows=10, raw="and more", parent=Path(erased.root).name)
    fault = r"tune\.space: dataset\.features\.x needs further .* rows that were erased from version \S* would come back; remove it, or"
    with pytest.raises(ConfigError, match=fault):
        check_search(config)
    check_search(search(plain))
    write(config, rows=7, raw="without the rows")
    check_search(config)


def test_a_process_that_dies_says_what_it_wrote_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no Java >&2\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr(etl_process.sys, "executable", str(python))
    process = EtlProcess({"name": "toy"})
    wait_until(lambda: process.answer() is not None, "its end", 60)
    assert process.answer() == EtlAnswer("its process ended with exit code 3, and last wrote: no Java")
    process.end()


def test_an_etl_under_way_ends_with_the_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncat > {tmp_path}/read\nexec {sys.executable} -c 'import time; time.sleep(600)'\n")
    python.chmod(0o755)
    monkeypatch.setattr(etl_process.sys, "executable", str(python))
    process = EtlProcess({"name": "toy"})
    wait_until((tmp_path / "read").exists, "its start", 60)
    assert process.answer() is None
    process.end()
    assert process._process.returncode is not None
