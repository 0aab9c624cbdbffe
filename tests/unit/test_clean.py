"""What a cleaning removes of a dataset and its trainings, and above all what it does not."""

import json
import logging
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow import MlflowClient
from pyarrow.fs import copy_files
from stores import new_store
from trainings import training
from versions import write_version

from pipelines import api
from pipelines.commands import COMMANDS
from pipelines.config import Config, parse
from pipelines.config.dataset.dataset import Keep
from pipelines.data.versions import storage
from pipelines.data.versions.commit import commit, read_manifest
from pipelines.data.versions.manifest import Erasure, content_digest, split_summaries
from pipelines.data.versions.part_folders import PartFolder, part_folder
from pipelines.data.versions.versions import confirm, open_version
from pipelines.errors import ConfigError, LockstepError, TrackingError
from pipelines.lifecycle.clean import cleaning as cleaning_module
from pipelines.lifecycle.clean.cleaning import Cleaning
from pipelines.lifecycle.statements.attested_versions import mark_attested
from pipelines.runtime import progress
from pipelines.tracking.dataset_readers import DIGEST_TAG
from pipelines.tracking.run_heartbeat import DATASET, HEARTBEAT, heartbeat
from pipelines.tracking.tracked_run import KIND
from pipelines.tracking.training import FOLDER

A, B, C, D, E, F = (letter * 12 for letter in "abcdef")
OLD_DAYS = 100.0


class Store:
    """A dataset and an MLflow in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.uri = new_store(folder)
        self.client = MlflowClient(self.uri)
        self.template = write_version(folder / "template", {"train": [{"x": np.arange(90.0, dtype="float32"), "label": np.arange(90) % 2}]})

    def config(self, **keep: float) -> Config:
        values = training(self.folder, rows=64, uri=self.uri).model_dump(mode="json", by_alias=True)
        values["dataset"] |= {"path": str(self.data), "keep": {"versions": 1, "days": 30, **keep}}
        return parse(values, "toy")

    def add(self, name: str, days: float, shares: tuple[str, ...] = (), **fields: Any) -> Path:
        """A version of this age, with a part of its own and those that the versions in `shares` have."""
        filesystem, root = storage.locate(str(self.data / name))
        attempt = f"attempt{name[:2]}"
        part = f"data-{attempt}/split=train/part-00000.parquet"
        groups = [replace(group, file=part, digest=name + group.digest[12:]) for group in self.template.row_groups]
        path = Path(root) / part
        path.parent.mkdir(parents=True)
        path.write_bytes((Path(self.template.root) / self.template.row_groups[0].file).read_bytes())
        shared = [
            replace(group, part=place + 1, file=f"../{other}/data-attempt{other[:2]}/split=train/part-00000.parquet")
            for place, other in enumerate(shares)
            for group in groups
        ]
        created = datetime.now(UTC) - timedelta(days=days)
        groups, encoders = [*groups, *shared], self.template.manifest.encoders
        digest, splits = content_digest(encoders, groups), split_summaries(encoders, groups)
        update = {"version": name, "attempt": attempt, "created": created, "digest": digest, "splits": splits, **fields}
        commit(filesystem, root, self.template.manifest.model_copy(update=update), groups)
        make_older(Path(root), days)
        return Path(root)

    def run(self, status: str = "FINISHED", experiment: str = "toy", **tags: str) -> str:
        present = self.client.get_experiment_by_name(experiment)
        number = present.experiment_id if present else self.client.create_experiment(experiment)
        run_id = str(self.client.create_run(number, tags={name.replace("__", "."): value for name, value in tags.items()}).info.run_id)
        if status != "RUNNING":
            self.client.set_terminated(run_id, status, end_time=int((time.time() - OLD_DAYS * 86_400) * 1_000))
        return run_id

    def names(self) -> set[str]:
        return {path.name for path in self.data.iterdir()}


def make_older(folder: Path, days: float) -> None:
    changed = time.time() - days * 86_400
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (changed, changed))


def leaving(cleaning: Cleaning) -> set[str]:
    return {item.name for item in cleaning.items if item.goes}


def reason(cleaning: Cleaning, name: str) -> str:
    return next(item.reason for item in cleaning.items if item.name == name)


@pytest.fixture
def lake(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_a_version_goes_if_it_is_neither_among_the_newest_nor_young(lake: Store) -> None:
    for name, days in ((A, 90), (B, 60), (C, 40), (D, 3), (E, 2), (F, 1)):
        lake.add(name, days)
    dry_run = api.clean(lake.config(versions=4))
    assert leaving(dry_run) == {A, B} and dry_run.is_dry_run and lake.names() == {A, B, C, D, E, F}
    assert reason(dry_run, C) == "it is among the newest 4" and "older than 30 days, and not among the newest 4" in reason(dry_run, A)
    assert "not older than 30 days" in reason(api.clean(lake.config()), D)
    size = sum(path.stat().st_size for name in (A, B) for path in (lake.data / name).rglob("*") if path.is_file())
    cleaning = api.clean(lake.config(versions=4), yes=True)
    assert cleaning.bytes == dry_run.bytes == size and lake.names() == {C, D, E, F}
    assert leaving(api.clean(lake.config(versions=4), yes=True)) == set()


def test_the_newest_is_the_one_that_was_confirmed_last(lake: Store) -> None:
    old = lake.add(A, 90)
    lake.add(B, 60)
    confirm(*storage.locate(str(old)))
    assert leaving(api.clean(lake.config())) == {B}


def test_the_newest_version_of_each_config_stays(lake: Store) -> None:
    lake.add(A, 90, identity={"dataset": {"seed": 1}})
    lake.add(B, 80, identity={"dataset": {"seed": 1}})
    lake.add(C, 1, identity={"dataset": {"seed": 2}})
    cleaning = api.clean(lake.config(), yes=True)
    assert leaving(cleaning) == {A} and "newest of its source and dataset settings" in reason(cleaning, B)


def test_versions_stay_whose_parts_others_share_and_their_parents(lake: Store) -> None:
    """E shares a part of C, C one of A, and D is the parent of E; B is nobody's."""
    lake.add(A, 95)
    lake.add(B, 94)
    lake.add(C, 93, shares=(A,))
    lake.add(D, 92)
    lake.add(E, 1, shares=(C,), parent=D)
    cleaning = api.clean(lake.config(), yes=True)
    assert leaving(cleaning) == {B} and lake.names() == {A, C, D, E}
    assert reason(cleaning, A) == f"version {C} shares its parts" and reason(cleaning, D) == f"it is the parent of version {E}"
    assert open_version(str(lake.data / E)).rows("train") == 180


def test_a_chain_that_nobody_needs_goes_from_its_end(lake: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted between two manifests, no version is left whose parent is gone."""
    lake.add(A, 95)
    lake.add(B, 94, shares=(A,), parent=A)
    lake.add(C, 93, shares=(A, B), parent=B)
    lake.add(D, 1)
    hidden: list[str] = []

    def hide_two(version: Any) -> bool:
        if len(hidden) == 2:
            raise KeyboardInterrupt
        hidden.append(version.name)
        return hide(version)

    hide = cleaning_module.hide_version
    monkeypatch.setattr(cleaning_module, "hide_version", hide_two)
    with pytest.raises(KeyboardInterrupt):
        api.clean(lake.config(), yes=True)
    assert hidden == [C, B] and read_manifest(*storage.locate(str(lake.data / A))) and lake.names() == {A, B, C, D}
    monkeypatch.undo()
    cleaning = api.clean(lake.config(), yes=True)
    assert {item.kind for item in cleaning.items if item.goes and item.name in (B, C)} == {"leftovers"} and lake.names() == {D}


def test_what_a_removal_left_in_a_folder_goes_though_it_is_young(lake: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    root = lake.add(A, 0)
    lake.add(B, 0)

    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "remove_folder", stop)
    os.utime(root / "manifest.json")
    time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt):
        api.clean(lake.config(days=0), yes=True)
    assert not (root / "manifest.json").exists() and (root / "removed.json").exists() and lake.names() == {A, B}
    monkeypatch.undo()
    api.clean(lake.config(days=0), yes=True)
    assert lake.names() == {B}


def test_after_an_interruption_anywhere_versions_are_complete_and_the_next_cleaning_ends(lake: Store) -> None:
    for name, days, shares in ((A, 95, ()), (B, 94, (A,)), (C, 93, (A, B)), (D, 92, ()), (E, 1, (D,))):
        lake.add(name, days, shares)
    original, stops = lake.folder / "original", 0
    shutil.copytree(lake.data, original)
    while True:
        shutil.rmtree(lake.data)
        shutil.copytree(original, lake.data)
        calls = iter(range(stops + 1))
        with pytest.MonkeyPatch.context() as patch:
            for module, name in ((storage, "remove_file"), (storage, "remove_folder"), (cleaning_module, "hide_version")):
                patch.setattr(module, name, partial(stop_after, calls, getattr(module, name)))
            try:
                api.clean(lake.config(), yes=True)
                break
            except KeyboardInterrupt:
                stops += 1
        for version in lake.data.iterdir():
            if (version / "manifest.json").exists():
                assert all((version / file).exists() for file in open_version(str(version)).parts("train"))
        api.clean(lake.config(), yes=True)
        assert lake.names() == {D, E}
    assert stops > 10 and lake.names() == {D, E}


def test_versions_on_an_object_store_go_as_well(lake: Store, store_options: str) -> None:
    """There a folder is its files, and a manifest that is moved is copied and removed."""
    for name, days, shares in ((A, 95, ()), (B, 94, (A,)), (C, 93, ()), (D, 1, (C,))):
        lake.add(name, days, shares)
    uri = f"s3://cleaning/data?{store_options}"
    filesystem, folder = storage.locate(uri)
    filesystem.create_dir("cleaning")
    copy_files(str(lake.data), folder, destination_filesystem=filesystem)
    config = lake.config()
    config = config.model_copy(update={"dataset": config.dataset.model_copy(update={"path": uri})})
    assert leaving(api.clean(config, yes=True)) == {A, B}
    assert {entry.base_name for entry in storage.entries(filesystem, folder)} == {C, D}
    assert open_version(uri).rows("train") == 180 and leaving(api.clean(config, yes=True)) == set()


def stop_after(calls: Iterator[int], function: Any, *arguments: Any) -> Any:
    """Call a function; interrupt the process in place of the call after the last one of `calls`."""
    if next(calls, None) is None:
        raise KeyboardInterrupt
    return function(*arguments)


def test_an_etl_that_makes_a_removed_version_again_is_not_touched(lake: Store) -> None:
    root = lake.add(A, 90)
    lake.add(B, 1)
    (root / "manifest.json").rename(root / "removed.json")
    live = root / "data-living" / "part.parquet"
    live.parent.mkdir()
    live.write_bytes(b"rows")
    api.clean(lake.config(), yes=True)
    assert [path.relative_to(root) for path in root.rglob("*") if path.is_file()] == [live.relative_to(root)]


@pytest.mark.parametrize("days", [0.5, 2.0])
def test_dead_attempts_go_and_young_ones_stay(lake: Store, days: float) -> None:
    committed, alone = lake.add(A, 10), lake.data / B
    for root in (committed, alone):
        part = root / "data-dead" / "split=train" / "part.parquet"
        part.parent.mkdir(parents=True)
        part.write_bytes(b"rows")
    make_older(lake.data, days)
    cleaning = api.clean(lake.config(), yes=True)
    has_gone = days > 1
    assert leaving(cleaning) == ({A, B} if has_gone else set()) and cleaning.bytes == (8 if has_gone else 0)
    assert (committed / "data-dead").exists() == alone.exists() == (not has_gone)
    assert open_version(str(committed)).rows("train") == 90


def test_parts_of_an_attempt_that_is_not_committed_any_more_stay_if_an_index_names_them(lake: Store) -> None:
    root = lake.add(A, 90)
    lake.add(B, 1, shares=(A,))
    manifest = read_manifest(*storage.locate(str(root)))
    assert manifest is not None
    for kind, end in (("data", ""), ("row_groups", ".parquet")):  # as if the version had been made again
        newer, older = root / f"{kind}-newer{end}", root / f"{kind}-{manifest.attempt}{end}"
        newer.mkdir() if kind == "data" else newer.write_bytes(older.read_bytes())
    (root / "manifest.json").write_bytes(manifest.model_copy(update={"attempt": "newer"}).to_json())
    make_older(root, 90)
    api.clean(lake.config(), yes=True)
    assert open_version(str(lake.data / B)).rows("train") == 180 and (root / f"data-{manifest.attempt}").exists()


def test_a_version_behind_a_link_stays(lake: Store) -> None:
    lake.add(A, 90).rename(lake.folder / "elsewhere")
    lake.add(B, 1)
    (lake.data / A).symlink_to(lake.folder / "elsewhere")
    cleaning = api.clean(lake.config(), yes=True)
    assert leaving(cleaning) == set() and "is a link" in reason(cleaning, A)
    assert open_version(str(lake.data / A)).rows("train") == 90


def test_a_version_with_a_damaged_manifest_stays_with_all_that_it_refers_to(lake: Store) -> None:
    lake.add(A, 95)
    lake.add(B, 94)
    damaged = lake.add(C, 93, shares=(A,))
    lake.add(D, 1)
    (damaged / "manifest.json").write_bytes(b"{}")
    cleaning = api.clean(lake.config(), yes=True)
    assert leaving(cleaning) == {B} and "its manifest cannot be read" in reason(cleaning, C)
    index = next(damaged.glob("row_groups-*"))
    index.write_bytes(b"PAR1")
    assert f"version {C} may share its parts" in reason(api.clean(lake.config()), A)


@pytest.mark.parametrize("has_run", [True, False])
def test_a_version_that_a_registered_model_was_trained_on_stays(lake: Store, has_run: bool) -> None:
    for name, days in ((A, 95), (B, 94), (C, 93), (D, 1)):
        lake.add(name, days)
    by_version = lake.run(experiment="elsewhere", dataset__version=A)
    digest = open_version(str(lake.data / B)).digest
    by_digest = lake.run(dataset__digest=digest)
    lake.client.create_registered_model("other")
    lake.client.create_model_version("other", f"runs:/{by_version}/model", by_version)
    lake.client.create_model_version("other", f"runs:/{by_digest}/model", by_digest if has_run else None, {DIGEST_TAG: digest})
    lake.client.set_registered_model_alias("other", "champion", "1")
    lake.client.delete_run(by_version)
    cleaning = api.clean(lake.config(), yes=True)
    assert leaving(cleaning) == {C} and lake.names() == {A, B, D}
    assert reason(cleaning, A) == "version 1 of the model other (champion) was trained on it"


def test_a_model_of_the_pipeline_of_unknown_origin_keeps_every_version(lake: Store) -> None:
    lake.add(A, 90)
    lake.add(B, 1)
    lake.client.create_registered_model("toy")
    lake.client.create_model_version("toy", "somewhere")
    cleaning = api.clean(lake.config(), yes=True)
    assert leaving(cleaning) == set() and "may have been trained on it" in reason(cleaning, A)


@pytest.mark.parametrize("status", ["RUNNING", "KILLED"])
def test_a_version_that_a_run_reads_stays(lake: Store, status: str) -> None:
    """A run that was killed may be saving still, as its heartbeat says."""
    lake.add(A, 90)
    lake.add(B, 1)
    run_id = lake.run(status, "elsewhere", dataset__version=A)
    if status == "KILLED":
        assert leaving(api.clean(lake.config())) == {A}
        lake.client.set_tag(run_id, HEARTBEAT, heartbeat())
    assert reason(api.clean(lake.config(), yes=True), A) == f"run {run_id}, which is RUNNING, reads it" and lake.names() == {A, B}


def test_a_version_stays_whose_rows_a_run_has_read_before_an_erasure(lake: Store) -> None:
    erasure = Erasure(certificate="c", digest_before="before", attempt_before="a", rows={"train": 1})
    lake.add(A, 90, erasures=(erasure,))
    lake.add(B, 1)
    lake.run("RUNNING", dataset__digest="before")
    assert leaving(api.clean(lake.config())) == set()


def test_while_an_etl_writes_to_the_dataset_every_version_stays(lake: Store) -> None:
    """It may share parts of any version, as with --from; one that was killed needs nothing."""
    lake.add(A, 90)
    lake.add(B, 1)
    run_id = lake.run("RUNNING")
    for name, value in {KIND: "etl", DATASET: str(lake.data), HEARTBEAT: heartbeat()}.items():
        lake.client.set_tag(run_id, name, value)
    assert "may share its parts" in reason(api.clean(lake.config()), A)
    lake.client.set_tag(run_id, HEARTBEAT, "")
    assert leaving(api.clean(lake.config())) == {A}


def test_a_version_that_a_statement_names_stays(lake: Store, tmp_path: Path) -> None:
    marked = lake.add(A, 95)
    lake.add(B, 94)
    lake.add(C, 93)
    lake.add(D, 1)
    mark_attested(open_version(str(marked)), tmp_path / "S.json")
    (lake.data / f"{B}.croissant.json").write_text("{}")
    cleaning = api.clean(lake.config(), yes=True)
    assert leaving(cleaning) == {C} and str(tmp_path / "S.json") in reason(cleaning, A) and ".croissant.json" in reason(cleaning, B)


def test_a_statement_marks_the_version_that_it_names(tmp_path: Path) -> None:
    config = training(tmp_path, rows=64)
    named, newer = tmp_path / "data" / ("0" * 12), tmp_path / "data" / B
    shutil.copytree(named, newer)
    manifest = read_manifest(*storage.locate(str(newer)))
    assert manifest is not None
    update = {"version": B, "created": manifest.created + timedelta(days=1)}
    api.make_keys(tmp_path / "key.pem")
    attestation = api.attest(config, tmp_path / "key.pem", tmp_path / "S.json")
    (newer / "manifest.json").write_bytes(manifest.model_copy(update=update).to_json())
    policy = config.dataset.model_copy(update={"keep": Keep(versions=1, days=0)})
    assert f"the statement {attestation.path} names it" in reason(api.clean(config.model_copy(update={"dataset": policy})), "0" * 12)


def test_nothing_goes_without_mlflow(lake: Store, tmp_path: Path) -> None:
    lake.add(A, 90)
    lake.add(B, 1)
    for uri in (f"sqlite:///{tmp_path}/absent.db", "http://127.0.0.1:9"):
        config = lake.config().model_copy(update={"tracking": lake.config().tracking.model_copy(update={"uri": uri})})
        with pytest.raises(TrackingError, match=r"tracking\.uri"):
            api.clean(config, yes=True)
    assert lake.names() == {A, B} and not (tmp_path / "absent.db").exists()
    assert leaving(api.clean(lake.config(), yes=True)) == {A}, "at the address where the trainings are"


def test_a_version_whose_run_another_mlflow_has_stays(lake: Store) -> None:
    lake.add(A, 90, run_id="0" * 32)
    lake.add(B, 89, run_id=lake.run())
    lake.add(C, 1)
    cleaning = api.clean(lake.config(), yes=True)
    assert leaving(cleaning) == {B} and "tracking.uri does not have run" in reason(cleaning, A)


def test_checkpoints_of_ended_runs_go_and_the_rest_of_their_folders_stays(lake: Store) -> None:
    folders = {}
    for status in ("FINISHED", "KILLED", "RUNNING"):
        run_id = lake.run(status)
        folders[status] = lake.folder / "runs" / f"toy-{run_id[:12]}"
        for file in ("checkpoints/step-1/record.json", "weights.safetensors", "trail/step-1.json"):
            (folders[status] / file).parent.mkdir(parents=True, exist_ok=True)
            (folders[status] / file).write_bytes(b"12345")
        lake.client.set_tag(run_id, FOLDER, str(folders[status]))
    edited = lake.run()
    (lake.folder / "mine/checkpoints").mkdir(parents=True)
    lake.client.set_tag(edited, FOLDER, str(lake.folder / "mine"))
    cleaning = api.clean(lake.config(), yes=True)
    assert cleaning.bytes == 10 and {status for status, folder in folders.items() if not (folder / "checkpoints").exists()} == {
        "FINISHED",
        "KILLED",
    }
    assert all((folder / "weights.safetensors").exists() and (folder / "trail").exists() for folder in folders.values())
    assert (lake.folder / "mine/checkpoints").exists() and leaving(api.clean(lake.config(days=200))) == set()


def test_the_checkpoints_of_a_paused_trial_stay_while_its_search_goes_on(lake: Store) -> None:
    folders = {}
    for search_status in ("RUNNING", "KILLED"):
        search = lake.run(search_status)
        run_id = lake.run("SCHEDULED", mlflow__parentRunId=search)
        folders[search_status] = lake.folder / "runs" / f"toy-{run_id[:12]}"
        (folders[search_status] / "checkpoints").mkdir(parents=True)
        lake.client.set_tag(run_id, FOLDER, str(folders[search_status]))
    api.clean(lake.config(), yes=True)
    assert {status: (folder / "checkpoints").exists() for status, folder in folders.items()} == {"RUNNING": True, "KILLED": False}


def test_the_command_says_what_would_go_and_does_it_with_yes(
    lake: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_way", ["text"])  # which the command changes, and the handlers of logs too
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    lake.add(A, 90)
    lake.add(B, 1)
    path = lake.folder / "conf.yaml"
    path.write_text(json.dumps(lake.config().model_dump(mode="json", by_alias=True, exclude_unset=True)))
    COMMANDS["clean"]("lockstep clean", [str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:4] == ["would", "go", "version", A] and lines[-1].startswith("would remove 1 version, ")
    COMMANDS["clean"]("lockstep clean", [str(path), "--yes", "--json"])
    values = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(value["name"], value["goes"]) for value in values[:-1]] == [(B, False), (A, True)]
    assert values[-1]["versions"] == [A] and not values[-1]["dry_run"] and values[-1]["bytes"] == values[1]["bytes"] > 0
    with pytest.raises(ConfigError, match="--yes and --dry-run"):
        COMMANDS["clean"]("lockstep clean", [str(path), "--yes", "--dry-run"])


def test_the_policy_is_no_part_of_a_version(lake: Store) -> None:
    configs = lake.config(versions=1), lake.config(versions=7, days=0)
    assert configs[0].data_identity == configs[1].data_identity and configs[0].model_identity == configs[1].model_identity
    with pytest.raises(LockstepError, match="keep"):
        lake.config(versions=0)


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("data-a1/split=train/part-0.parquet", PartFolder("", "a1")),
        (f"../{A}/data-a-2/split=test/part-0.parquet", PartFolder(A, "a-2")),
        ("part.parquet", PartFolder("", "")),
    ],
)
def test_the_folder_of_a_part(file: str, folder: PartFolder) -> None:
    assert part_folder(file) == folder
