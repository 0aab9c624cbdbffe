"""Many nights of a pipeline that nobody watches: data come, change and go, people are erased, models are trained and promoted, and jobs are
killed and started again. At the end the rows are those of one ETL of everything; versions and champion are those of the same nights without
a kill."""

import json
import random
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from mlflow import MlflowClient
from stores import new_store

from chaos.nightly_data import MINIMUM_AGE, READ_IN_FULL, NightlyData
from chaos.processes import Job
from chaos.training import Outcome
from pipelines.config import Config, load
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.versions import Version, open_version, read_column, versions
from pipelines.errors import LockstepError

NIGHTS = 50
JOB_SECONDS = 1_500.0
REFUSED_MODEL = 8
CHAMPION = "models:/people@champion"
NIGHTS_PER_TRAINING = 4
SUBMIT = "--master local[2] --conf spark.ui.enabled=false --driver-memory 1g pyspark-shell"


@dataclass
class Nights:
    """A pipeline, its data, and what the nights have made of them."""

    folder: Path
    chance: random.Random
    """Decides when jobs are killed."""
    kill_share: float
    """Chance of each job to be killed."""
    config: Config
    data: NightlyData
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("etl", "train", "promote", "predict"), 15.0) | {"erase": 3.0})
    """How long each job took last, without a kill."""
    version: str = ""
    """The version of the last night."""
    nights: Counter[str] = field(default_factory=Counter)
    """By what changed in them."""
    digests: list[str] = field(default_factory=list)
    """Of the version of each night."""
    outcomes: list[Outcome] = field(default_factory=list)
    """One for each kill."""

    @property
    def pipeline(self) -> Path:
        return self.folder / "people.yaml"


def write_pipeline(folder: Path, dataset: str) -> Path:
    """The YAML file of a pipeline over the folder `raw`, whose encoders have no state: equal rows are encoded alike in any version."""
    values: dict[str, Any] = {
        "name": "people",
        "source": {
            "tables": {"people": {"format": "parquet", "path": f"{folder}/raw"}},
            "expect": {"plausible": f"age >= {MINIMUM_AGE}"},
            "max_quarantined": 0.6,
        },
        "dataset": {
            "path": f"{folder}/{dataset}",
            "key": ["id"],
            "newest": "seen_on",
            "features": {"age": "identity", "number": {"encoder": "identity", "column": "id"}},
            "target": {"left": "binary"},
        },
        "task": {"kind": "tabular", "hidden": [4]},
        "train": {"storage": f"{folder}/runs", "workers": 1, "epochs": 1, "global_batch": 32},
        "tracking": {"uri": new_store(folder)},
        "registry": {"clean_git": False},
    }
    path = folder / ("people.yaml" if dataset == "data" else f"{dataset}.yaml")
    path.write_text(yaml.safe_dump(values))
    return path


def begin(folder: Path, seed: int, kill_share: float = 0.5) -> Nights:
    (folder / "raw").mkdir(parents=True)
    kills, changes = random.Random(f"{seed}/kills"), random.Random(f"{seed}/changes")  # apart: how many kills hit depends on the machine
    return Nights(folder, kills, kill_share, load(write_pipeline(folder, "data")), NightlyData(folder / "raw", changes))


def live_through(nights: Nights, number: int) -> None:
    """One night: data change, people are erased, ETL makes its version, and some nights a model is trained, promoted and used, all of it
    killed now and then. Raises AssertionError if a job does not end well, or if the version is not that of the data."""
    before = set(nights.data.erased_keys)
    kind = nights.data.change(number)
    nights.nights[kind] += 1
    if people := nights.data.erased_keys - before:
        keys = [word for key in sorted(people) for word in ("--key", f"id={key}")]
        finish(nights, "erase", ["jobs/erase.py", str(nights.pipeline), *keys, "--yes", "--grace", "0", "--json"])
    log = finish(nights, "etl", ["jobs/etl.py", str(nights.pipeline), "--from", "previous", "--json"])
    result = read_result(log)
    version = open_version(nights.config.dataset.path, nights.config.data_identity)
    assert version.manifest.version == result["version"], "the version to open is that of the job"
    check_lineage(nights, kind, version.manifest)
    check_rows(nights, version)
    nights.version = version.manifest.version
    nights.digests.append(version.digest)
    if number % NIGHTS_PER_TRAINING == 1:
        train_and_promote(nights)


def train_and_promote(nights: Nights) -> None:
    """Train a model, promote it unless a gate refuses, and predict with the champion."""
    run = read_result(finish(nights, "train", ["jobs/train.py", str(nights.pipeline), "--once", "--json"]))["run_id"]
    finish(nights, "promote", ["jobs/promote.py", str(nights.pipeline), "--run", run, "--json"], codes=(0, REFUSED_MODEL))
    output = str(nights.folder / "predictions")
    finish(nights, "predict", ["jobs/predict.py", str(nights.pipeline), "--model", CHAMPION, "--output", output, "--json"])


def check_lineage(nights: Nights, kind: str, manifest: Manifest) -> None:
    if kind == "nothing":
        assert manifest.version == nights.version, "a night without new data keeps its version"
    else:
        expected = "" if kind in READ_IN_FULL else nights.version
        assert manifest.parent == expected, f"{kind}: {manifest.version} has the parent {manifest.parent!r}, not {expected!r}"


def check_rows(nights: Nights, version: Version) -> None:
    columns = {column.name: column for column in version.columns}
    values = {
        name: np.concatenate([read_column(version, split, columns[name]) for split in version.manifest.splits])
        for name in ("number", "age")
    }
    assert len(set(values["number"].tolist())) == len(values["number"]), "each key once"
    actual = {int(key): float(age) for key, age in zip(values["number"], values["age"], strict=True)}
    expected = {key: float(np.float32(age)) for key, age in nights.data.expect_rows().items()}
    wrong = sorted(key for key in {*actual, *expected} if actual.get(key) != expected.get(key))
    assert not wrong, f"{len(wrong)} keys have another row, such as {wrong[0]}: {actual.get(wrong[0])}, not {expected.get(wrong[0])}"


def start_etl(nights: Nights, log: Path, *flags: str) -> Job:
    return Job(["jobs/etl.py", str(nights.pipeline), "--json", *flags], log, PYSPARK_SUBMIT_ARGS=SUBMIT)


def finish(nights: Nights, name: str, command: list[str], codes: tuple[int, ...] = (0,)) -> Path:
    """Run a job until it ends with one of the exit codes, killed now and then at a random moment. Returns the log of its last run."""
    for attempt in range(6):
        log = nights.folder / f"{name}.log"
        log.unlink(missing_ok=True)
        job, began = Job(command, log, PYSPARK_SUBMIT_ARGS=SUBMIT), time.monotonic()
        is_to_be_killed = attempt < 3 and nights.chance.random() < nights.kill_share
        with suppress(subprocess.TimeoutExpired):
            moment = nights.chance.uniform(0.1, 1.05) * nights.seconds[name]
            code = job.wait(moment if is_to_be_killed else JOB_SECONDS)
            assert code in codes, f"{name} ended with {code}: {job.tail()}"
            nights.seconds[name] = time.monotonic() - began
            if nights.outcomes and attempt:
                nights.outcomes[-1].seconds = nights.seconds[name]
            return log
        job.end_session()
        assert is_to_be_killed, f"{name} has not ended within {JOB_SECONDS:g} s: {job.tail()}"
        nights.outcomes.append(Outcome(f"{name} killed", True, note=f"after {moment:.0f} s"))
    raise AssertionError(f"{name} was killed every time")


def read_result(log: Path) -> dict[str, Any]:
    """What a job says that it has made."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith('{"event": "result"')]
    assert len(lines) == 1, f"{log} has {len(lines)} results"
    return dict(json.loads(lines[0]))


def check_end(nights: Nights, seed: int) -> dict[str, Any]:
    """Compare with one ETL of everything, and with the same nights without a kill, and look at each version and run. Raises AssertionError
    if anything differs."""
    straight = load(write_pipeline(nights.folder, "straight"))
    finish(nights, "etl", ["jobs/etl.py", str(nights.folder / "straight.yaml"), "--json"])
    grown, full = (open_version(config.dataset.path, config.data_identity) for config in (nights.config, straight))
    digests = [{split: part.rows_digest for split, part in version.manifest.splits.items()} for version in (grown, full)]
    assert digests[0] == digests[1], f"the sets of rows differ: {digests}"
    assert not full.manifest.parent and grown.manifest.version == nights.version
    names = check_versions(nights)
    # A training ends the runs that killed commands left.
    finish(nights, "train", ["jobs/train.py", str(nights.pipeline), "--json"])
    check_without_kills(nights, seed)
    return {"versions": len(names), **check_runs(nights), **nights.nights}


def check_without_kills(nights: Nights, seed: int) -> None:
    """Live through the same nights once more, without a kill. Raises AssertionError if a version or the champion is another one."""
    quiet = begin(nights.folder.parent / f"{nights.folder.name}-quiet", seed, kill_share=0.0)
    for number in range(len(nights.digests)):
        live_through(quiet, number)
    nights_that_differ = [number for number, pair in enumerate(zip(nights.digests, quiet.digests, strict=True)) if len({*pair}) > 1]
    assert not nights_that_differ, f"without kills, nights {nights_that_differ} have other rows or another order"
    champions = [read_champion(trial) for trial in (nights, quiet)]
    assert champions[0] == champions[1], f"the champions differ: {champions}"


def read_champion(nights: Nights) -> dict[str, str]:
    """Digests of the champion's weights and of the rows that it was trained on."""
    client = MlflowClient(nights.config.tracking.uri)
    version = client.get_model_version_by_alias(nights.config.name, "champion")
    tags = client.get_run(version.run_id).data.tags
    return {name: tags[name] for name in ("model.digest", "dataset.digest")}


def check_versions(nights: Nights) -> dict[str, Manifest]:
    """Every version is whole, and its parents are there. Returns the manifests by name."""
    manifests = {manifest.version: manifest for _, manifest in versions(nights.config.dataset.path)}
    for name, manifest in manifests.items():
        version = open_version(f"{nights.config.dataset.path}/{name}")
        for split in manifest.splits:
            reader = Reader(version, split)
            for group in range(len(reader.groups)):
                keys = reader.read(group)["number"]  # which compares every checksum
                erased = nights.data.erased_keys & {*keys.ravel().astype(int).tolist()}
                assert not erased, f"{name} still has the rows of {sorted(erased)}"
        if manifest.parent:
            assert manifest.parent_digest in manifests[manifest.parent].digests, f"{name} has another parent than it names"
    return manifests


def check_runs(nights: Nights) -> dict[str, int]:
    """Every run has an end, and each version the run that made it."""
    client = MlflowClient(nights.config.tracking.uri)
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()], max_results=10_000)
    states = {run.info.run_id: run.info.status for run in runs}
    assert "RUNNING" not in states.values(), f"{Counter(states.values())['RUNNING']} runs have no end"
    for _, manifest in versions(nights.config.dataset.path):
        assert states[manifest.run_id] == "FINISHED", f"the run of {manifest.version} is {states[manifest.run_id]}"
    return {f"runs {status}": count for status, count in Counter(states.values()).items()}


def run_all(folder: Path, seed: int, count: int) -> tuple[list[Outcome], dict[str, Any]]:
    """The outcomes of all kills, and what the end was. What goes wrong is an outcome, and ends the nights."""
    nights = begin(folder, seed)
    try:
        for number in range(count):
            live_through(nights, number)
            print(f"night {number}: {nights.version}, {len(nights.outcomes)} kills", flush=True)
        return nights.outcomes, check_end(nights, seed)
    except (AssertionError, LockstepError) as error:
        print(error, flush=True)
        return [*nights.outcomes, Outcome("nights", False, note=str(error))], dict(nights.nights)
