"""The first hour: a file, `lockstep init`, and the two commands, with no edit."""

import datetime
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drafts import draft_config
from pyspark.sql import SparkSession
from stores import new_store

from pipelines import api
from pipelines.commands import COMMANDS
from pipelines.config.load import load, parse, with_absolute_paths
from pipelines.config.reading import from_yaml
from pipelines.data.versions.versions import open_version, read_column
from pipelines.errors import SourceError, TrainingError
from pipelines.init.draft import Request, yaml_text
from pipelines.rehearsal import process as rehearsal_process
from pipelines.rehearsal.etl_stages import try_config
from pipelines.rehearsal.process import RehearsalProcess, RehearsalRequest, RehearsalResult
from pipelines.rehearsal.rehearsal import Rehearsal

ROWS = 600


def write_table(path: Path) -> None:
    """A table with what real ones have: separators of Europe, missing values, a name of each row, and dates."""
    random = np.random.default_rng(3)
    lines = ["Id;Plan;Age;Since;Spent;left"]
    for number in range(ROWS):
        age = "" if number % 40 == 7 else random.integers(18, 90)
        since = np.datetime64("2024-01-01") + random.integers(0, 600)
        spent = f"{random.lognormal(3, 1):.2f}".replace(".", ",")
        plan = random.choice(["basic", "plus", "pro"])
        has_left = "yes" if random.random() < (0.8 if plan == "basic" else 0.2) else "no"
        lines.append(f"k{number:04};{plan};{age};{since};{spent};{has_left}")
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.full
@pytest.mark.usefixtures("spark", "ray_cluster")
def test_one_command_drafts_a_config_makes_its_version_and_searches_better_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKSTEP_HOME", os.fspath(tmp_path))
    write_table(tmp_path / "churn.csv")
    COMMANDS["init"]("lockstep init", ["churn.csv", "--tune", "5s"])
    printed = capsys.readouterr().out
    assert "written   conf/churn.yaml" in printed and "written   conf/churn_tuned.yaml" in printed and "the config as it stands" in printed
    draft, tuned = load("conf/churn.yaml"), load("conf/churn_tuned.yaml")
    assert draft.tune.budget == "5s" and not tuned.tune.space and tuned.dataset == draft.dataset
    assert open_version(draft.dataset.path).rows("train") > 0
    second = api.tune(api.read_config("conf/churn.yaml"), "conf/churn.yaml")
    assert second.trials[0].score is not None and second.best.score is not None, "a search goes on with what is in MLflow"
    assert second.fresh.validation and len(second.fresh.validation) == draft.tune.final_seeds


@pytest.mark.full
@pytest.mark.usefixtures("spark", "ray_cluster")
def test_a_file_becomes_a_model_without_an_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKSTEP_HOME", os.fspath(tmp_path))
    write_table(tmp_path / "churn.csv")
    draft = api.init("churn.csv")
    assert draft.sections["dataset"]["key"] == ["Id"] and draft.sections["dataset"]["target"] == {"left": "binary"}
    config = api.read_config("conf/churn.yaml", {"train.epochs": 3, "tracking.uri": new_store(tmp_path)})
    manifest = api.prepare(config)
    assert sum(summary.rows for summary in manifest.splits.values()) == ROWS and not manifest.quarantined
    result = api.train(config)
    assert 0.5 < result.metrics["test/auc"] <= 1
    served = api.load_model(config, result.model)
    assert len(served.predict(served.input_example)) > 0


@pytest.mark.usefixtures("spark")
def test_names_and_values_that_sql_would_misread_become_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", os.fspath(tmp_path))
    random = np.random.default_rng(5)
    length, years = random.lognormal(0, 1, ROWS), random.choice([20230101, 20240101], ROWS)
    days = np.datetime64("2024-01-01") + random.integers(0, 600, ROWS).astype("timedelta64[D]")
    frame = pa.table({"Sepal.Length": length, "where": length[::-1], "date": days, "date_month": length, "y": years})
    pq.write_table(frame, tmp_path / "t.parquet")
    draft = draft_config(Request(os.fspath(tmp_path / "t.parquet"), "y", "iris-v2.1"))
    config = with_absolute_paths(parse(from_yaml(yaml_text(draft)), "test"), tmp_path)
    assert {"Sepal_Length", "date_month", "date_month_2", "date_day"} <= config.dataset.features.keys()
    manifest = api.prepare(config)
    version = open_version(config.dataset.path)
    target = manifest.encoders["y"].column
    positive = sum(int(read_column(version, split, target).sum()) for split in manifest.splits)
    assert positive in (np.sum(years == 20230101), np.sum(years == 20240101)) and not manifest.quarantined


@pytest.mark.usefixtures("spark")
def test_equal_rows_of_nested_records_go_to_one_split_though_they_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the rows repeats another one but for its number."""
    monkeypatch.setenv("LOCKSTEP_HOME", os.fspath(tmp_path))
    random = np.random.default_rng(5)
    heights, cities = random.normal(size=400).round(6), random.choice(["Rome", "Oslo"], 400)
    lines = [
        {"row": row, "user": {"height": heights[row % 400], "home": {"city": cities[row % 400]}}, "y": int(heights[row % 400] > 0)}
        for row in range(600)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    draft = draft_config(Request(os.fspath(tmp_path / "t.jsonl"), "y", "toy"))
    config = with_absolute_paths(parse(from_yaml(yaml_text(draft)), "test"), tmp_path)
    manifest = api.prepare(config)
    version = open_version(config.dataset.path)
    rows = {split: read_column(version, split, manifest.encoders["user_height"].column).ravel() for split in manifest.splits}
    assert sum(map(len, rows.values())) == 600 and sum(len(set(values.tolist())) for values in rows.values()) == 400


def rehearsal_of_draft(path: Path, target: str) -> RehearsalResult:
    """What ETL makes of the draft of a file."""
    draft = draft_config(Request(os.fspath(path), target, "toy"))
    return try_config(RehearsalRequest(from_yaml(yaml_text(draft)), "toy.yaml", os.fspath(path.parent / "version")))


@pytest.mark.usefixtures("spark")
def test_columns_that_spark_does_not_read_are_left_out_of_the_draft(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    length = random.normal(size=ROWS)
    columns = {
        "length": length,
        "opens": pa.array([datetime.time(row % 24) for row in range(ROWS)], pa.time64("us")),
        "closes": pa.array([[datetime.time(row % 24)] for row in range(ROWS)], pa.list_(pa.time32("s"))),
        "half": pa.array(length.astype(np.float16)),
        "exact": pa.array(range(ROWS), pa.int64()).cast(pa.decimal256(60, 5)),
        "at": pa.array(random.integers(0, 10**18, ROWS), pa.timestamp("ns")),
        "large": pa.array(random.integers(0, 2**62, ROWS).astype(np.uint64) * 4),
        "left": length > random.normal(size=ROWS),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    result = rehearsal_of_draft(tmp_path / "t.parquet", "left")
    assert (result.rows, dict(result.refused), result.error) == (ROWS, {}, "")


@pytest.mark.usefixtures("spark")
def test_a_trial_says_what_etl_refuses_and_what_training_would(tmp_path: Path) -> None:
    write_table(tmp_path / "churn.csv")
    with (tmp_path / "churn.csv").open("a") as file:
        file.write("k9999;basic\n")
    result = rehearsal_of_draft(tmp_path / "churn.csv", "left")
    assert (result.rows, result.error) == (ROWS + 1, "") and list(result.refused.values()) == [1]
    assert "fewer than 6 columns" in next(iter(result.refused)) and "k9999" in next(iter(result.samples.values()))


class SparkOfTheTests(RehearsalProcess):
    """Makes versions in this process, which has a Spark, beside one that is asked for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[RehearsalRequest] = []

    def send(self, request: RehearsalRequest) -> None:
        self.requests.append(request)

    def receive(self) -> RehearsalResult:
        return try_config(self.requests[-1])


@pytest.mark.usefixtures("spark")
def test_what_training_would_refuse_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", os.fspath(tmp_path))
    write_table(tmp_path / "churn.csv")
    values = from_yaml(yaml_text(draft_config(Request(os.fspath(tmp_path / "churn.csv"), "left", "toy"))))
    values |= {"task": {"kind": "tabular"}, "train": {"global_batch": 2 * ROWS}}
    with SparkOfTheTests() as process, pytest.raises(TrainingError, match=r"toy\.yaml is not written.*global_batch"):
        Rehearsal(process, "toy.yaml").try_draft(values)


@pytest.mark.usefixtures("spark")
def test_a_draft_whose_data_changed_since_it_was_announced_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", os.fspath(tmp_path))
    write_table(tmp_path / "churn.csv")
    values = from_yaml(yaml_text(draft_config(Request(os.fspath(tmp_path / "churn.csv"), "left", "toy"))))
    other_data = values | {"dataset": values["dataset"] | {"split": {"train": 0.5, "validation": 0.25, "test": 0.25}}}
    for final, requests in [(values | {"train": {**values["train"], "epochs": 3}}, 1), (other_data, 2)]:
        with SparkOfTheTests() as process:
            rehearsal = Rehearsal(process, "toy.yaml")
            rehearsal.announce(values)
            assert rehearsal.try_draft(final) == ()
            assert len(process.requests) == requests


@pytest.mark.usefixtures("spark")
def test_a_draft_of_which_etl_would_refuse_many_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data lose their last values after the draft."""
    monkeypatch.setenv("LOCKSTEP_HOME", os.fspath(tmp_path))
    path = tmp_path / "churn.csv"
    write_table(path)
    sound, values = path.read_text(), from_yaml(yaml_text(draft_config(Request(os.fspath(path), "left", "toy"))))

    def outcome(content: str, values: dict[str, Any]) -> tuple[str, ...]:
        path.write_text(content)
        with SparkOfTheTests() as process:
            return Rehearsal(process, "toy.yaml").try_draft(values)

    broken = sound + "k9999;basic\n" * 100
    with pytest.raises(SourceError, match="ETL would refuse 100 of 700 rows; mend the data, or write a config by hand"):
        outcome(broken, values)
    # the remedies
    assert outcome(sound, values) == ()
    (line,) = outcome(broken, values | {"source": values["source"] | {"max_quarantined": 0.2}})
    assert "100" in line


def test_a_trial_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal_process, "MOST_SECONDS", 0.5)
    write_table(tmp_path / "churn.csv")
    draft = api.init(tmp_path / "churn.csv", "left", tmp_path / "t.yaml")
    assert "the draft was not tried with ETL, since the trial took more than 0.5 seconds" in draft.assumptions
    assert (tmp_path / "t.yaml").exists()


def test_a_draft_that_etl_would_refuse_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a real Spark in a process of its own, which ends with `init` and leaves no file."""
    monkeypatch.setenv("LOCKSTEP_HOME", os.fspath(tmp_path))
    values = np.random.default_rng(5).normal(size=ROWS)
    for folder in ("t/area=1", "t/town=2"):
        (tmp_path / folder).mkdir(parents=True)
        rows = "".join(f"{value},{value > 0}\n" for value in values)
        (tmp_path / folder / "a.csv").write_text(f"age,left\n{rows}")
    temporary = tmp_path / "temporary files"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(temporary))
    with pytest.raises(SourceError, match=r"t\.yaml is not written, since ETL or training would refuse it: .*in folders of the columns"):
        api.init(tmp_path / "t", "left", tmp_path / "t.yaml")
    assert not (tmp_path / "t.yaml").exists() and not list(temporary.iterdir())
    assert not [command for command in commands_of_children() if "rehearsal.process" in command]


def commands_of_children() -> Iterator[str]:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            yield " ".join(process.cmdline())
