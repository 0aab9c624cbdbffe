"""Benchmarks run, and their results say what was measured. How fast it was is for a quiet machine to say."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from runpy import run_module
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.network import quality
from benchmarks.train import sharded, spread_worker
from benchmarks.train.spread_worker import Case

ROOT = Path(__file__).parents[2]


def read_result(folder: Path, name: str, output: str) -> dict[str, Any]:
    (file,) = folder.glob(f"{name}-*.json")
    assert output.splitlines()[-1] == str(file)
    return json.loads(file.read_text())


def results(folder: Path, benchmark: str, *arguments: str, name: str) -> dict[str, Any]:
    """Of a benchmark as a command."""
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", "--small", "--results", folder, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment) as process:
        try:
            output, errors = process.communicate()
        finally:
            process.terminate()  # it ends what it started
    assert process.returncode == 0, errors
    return read_result(folder, name, output)


def test_ways_to_train_are_compared_by_their_means_over_seeds() -> None:
    expected = {"way": "local_sgd", "seeds": 2, "validation loss": 2.0, "standard error": pytest.approx(1.0), "/ ddp": 4.0}
    assert quality.make_row("local_sgd", [1.0, 3.0], [0.25, 0.75]) == expected
    assert quality.make_row("ddp", [0.5], [0.5])["standard error"] is None


class BenchmarkRunner:
    """Runs a benchmark in this process, in the tests' own Spark or Ray."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self._folder, self._patch, self._captured = folder, patch, captured

    def results(self, benchmark: str, *arguments: str, name: str) -> dict[str, Any]:
        self._patch.setattr(sys, "argv", [benchmark, "--small", "--results", str(self._folder), *arguments])
        run_module(f"benchmarks.{benchmark}", run_name="__main__", alter_sys=True)
        return read_result(self._folder, name, self._captured.readouterr().out)


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> BenchmarkRunner:
    return BenchmarkRunner(tmp_path, monkeypatch, capsys)


@pytest.fixture
def shared_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests' session, as it was afterwards."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", os.environ["PYSPARK_SUBMIT_ARGS"])
    names = ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions", "spark.sql.execution.arrow.pyspark.enabled")
    before = {name: spark.conf.get(name) for name in names}
    yield
    for name, value in before.items():
        assert value is not None
        spark.conf.set(name, value)


@pytest.mark.full
def test_whole_commands_are_timed_beside_those_by_hand(tmp_path: Path) -> None:
    (rows,) = results(tmp_path, "start", name="start")["tables"].values()
    seconds = {row["command"]: row["median"] for row in rows}
    assert set(seconds) == {"Spark by hand", "Spark by hand, our Java", "ETL", "torchrun by hand", "training"} and all(seconds.values())
    assert [row["command"] for row in rows if row["/ by hand"]] == ["ETL", "training"]


@pytest.mark.full
def test_the_loaders_tables_have_their_rows_and_positive_numbers(tmp_path: Path) -> None:
    result = results(tmp_path, "loader.against_peers", "--no-peers", "--tables", "narrow", "resume", "memory", "planning", name="loader")
    assert {"torch", "pyarrow"} <= result["versions"].keys()
    assert result["machine"]["cores"] >= 1
    tables = result["tables"]
    rates = {row["loader"]: row["rows/s"] for row in tables["narrow"]}
    assert {"bare Parquet decode", "Lockstep, first epoch", "Lockstep, later epochs", "Lockstep, cache off"} < rates.keys()
    assert all(rate > 0 for rate in rates.values())
    assert all(row["at 0 %, s"] > 0 and row["at 99 %, s"] > 0 for row in tables["resume"])
    assert [row["rows"] for row in tables["memory"]] == [10_000, 100_000]
    assert all(row["peak MiB"] < row["stated bound MiB"] for row in tables["memory"])
    assert all(row["plan, s"] > 0 and row["open, s"] > 0 for row in tables["planning"])


@pytest.mark.full
def test_shuffle_quality_tells_a_shuffle_from_none(runner: BenchmarkRunner) -> None:
    tables = runner.results("loader.shuffle_quality", name="shuffle_quality")["tables"]
    ks_distance = {row["order"]: row["KS distance"] for row in tables["orders"]}
    assert ks_distance["full permutation"] < ks_distance["Lockstep, window 64"] < ks_distance["Lockstep, window 4"]
    assert ks_distance["Lockstep, window 4"] < 0.5 < ks_distance["shuffle buffer of 10 batches"]
    for row in tables["learning"]:
        assert row["Lockstep, window 16"] == pytest.approx(row["full permutation"], rel=0.3)
        assert row["as they lie"] > 2 * row["Lockstep, window 4"]


@pytest.mark.full
@pytest.mark.usefixtures("shared_spark")
def test_etl_is_measured_beside_a_job_written_by_hand(runner: BenchmarkRunner, tmp_path: Path) -> None:
    (rows,) = runner.results("etl.against_by_hand", "--format", "csv", "--folder", str(tmp_path / "work"), name="etl")["tables"].values()
    assert [row["job"] for row in rows] == ["by hand", "ours"]
    assert rows[0]["ratio"] == 1 and all(row["seconds"] > 0 for row in rows)


@pytest.mark.full
@pytest.mark.usefixtures("shared_spark")
def test_etl_with_and_without_a_key_is_measured_beside_jobs_written_by_hand(runner: BenchmarkRunner, tmp_path: Path) -> None:
    (rows,) = runner.results("etl.against_by_hand", "--numbers", "--folder", str(tmp_path / "work"), name="etl-numbers")["tables"].values()
    jobs = ["by hand, without a key", "ours, without a key", "by hand, counting keys", "by hand, with a key", "ours, with a key"]
    assert [row["job"] for row in rows] == jobs
    assert all(row["seconds"] > 0 for row in rows) and [row["ratio"] == 1 for row in rows] == ["hand" in job for job in jobs]


@pytest.mark.full
@pytest.mark.usefixtures("shared_spark")
def test_etl_of_many_rows_reads_them_once_to_fit_and_is_measured_beside_others(runner: BenchmarkRunner, tmp_path: Path) -> None:
    stages, jobs = runner.results("etl.long", "--folder", str(tmp_path / "work"), name="etl-long")["tables"].values()
    by_stage = {row["stage"]: row for row in stages}
    assert 50_000 <= by_stage["fit"]["rows read"] < 60_000, "a key that does not repeat costs no second pass"
    assert 100_000 <= by_stage["write"]["rows read"] < 110_000, "before the shuffle and after it"
    assert by_stage["write"]["of write"] == 1 and by_stage["fit"]["of write"] > 0
    assert [row["job"] for row in jobs] == ["ours", "duckdb", "spark by hand"] and all(row["seconds"] > 0 for row in jobs)


@pytest.mark.full
@pytest.mark.usefixtures("shared_spark")
@pytest.mark.parametrize("kind", ["pictures", "texts"])
def test_etl_of_small_files_is_measured_beside_one_file_and_a_job_written_by_hand(
    runner: BenchmarkRunner, tmp_path: Path, kind: str
) -> None:
    (rows,) = runner.results("etl.small_files", "--kind", kind, "--folder", str(tmp_path / "work"), name=f"etl-small-{kind}")[
        "tables"
    ].values()
    assert [row["job"] for row in rows] == ["by hand", "ours, one file", "ours, many files"]
    assert rows[0]["ratio"] == 1 and all(row["seconds"] > 0 for row in rows)


@pytest.mark.full
def test_training_is_measured_beside_a_bare_script(tmp_path: Path) -> None:
    (rows,) = results(tmp_path, "train.against_bare", "--no-peers", "--cases", "MLP 4 x 1,024 on 100 columns", name="train")[
        "tables"
    ].values()
    assert [row["loop"] for row in rows] == ["ours", "ours, without Ray", "bare DDP, in memory"]
    assert all(row["rows/s"] > 0 for row in rows)
    assert all(row["of bare"] > 0 for row in rows)
    assert all(float(row["launches"]) == pytest.approx(row["of bare"], abs=1e-3) for row in rows[:2]), "of one launch"


@pytest.mark.full
@pytest.mark.usefixtures("ray_cluster")
def test_the_gpu_benchmark_runs_on_processors_in_its_small_form(runner: BenchmarkRunner) -> None:
    meeting, training, tracking = runner.results("gpu.training", name="gpu-small")["tables"].values()
    assert meeting[0]["GB/s"] > 0
    assert {(row["model"], row["precision"]) for row in training} == {
        *((model, precision) for model in ("ResNet-18", "GPT", "U-Net", "MLP") for precision in ("fp32", "bf16")),
        ("MLP", "fp16"),
    }
    assert all(row["rows/s"] > 0 and row["of a script by hand"] > 0 for row in training)
    assert [row["model"] for row in tracking] == ["MLP"]


@pytest.mark.full
def test_the_parts_of_a_step_are_measured_on_processors_in_a_small_form(runner: BenchmarkRunner) -> None:
    heads, attentions = runner.results("gpu.parts", name="gpu-parts-small")["tables"].values()
    assert {"ours", "ours in 4 chunks", "ours without kernels", "torch"} <= {row["head"] for row in heads}
    assert all(row["ms"] > 0 and row["difference"] < 0.05 for row in heads)
    assert attentions[0]["ms"] > 0


@pytest.mark.full
def test_the_tables_of_sharded_begin_with_ddp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def measure_workers(workers: int, case: Case, train: dict[str, Any]) -> dict[str, float]:
        share = 0.5 if train else 1.0
        return {"built": 2e8 * share, "kept": 1e8 * share, "peak": 4e8 * share, "seconds": case.rows / share, "parameters": 1e6}

    monkeypatch.setattr(sharded, "measure_workers", measure_workers)
    monkeypatch.setattr(sys, "argv", ["sharded", "--small", "--results", str(tmp_path)])
    sharded.main()
    memory, activations, speed = read_result(tmp_path, "sharded", capsys.readouterr().out)["tables"].values()
    assert [row["of ddp's"] for row in memory] == [1, *[0.5] * (len(sharded.WAYS) - 1)]
    assert [(row["of ddp's"], row["x ddp"]) for row in activations] == [(1, 1), *[(0.5, 0.5)] * 5]
    # Workers that compute the same rows compute all of the step's.
    assert {row["way"]: row["x ddp"] for row in speed} == {
        "ddp": 1,
        "shard 2": 0.5,
        "tensor 2": 0.25,
        "pipeline 2": 0.25,
        "context 2": 0.25,
    }


@pytest.mark.full
def test_a_worker_of_a_spread_model_says_what_it_needs() -> None:
    needs = spread_worker.measure_workers(2, spread_worker.TINY, sharded.sharding(tensor=2))
    assert 0 < needs["kept"] <= needs["peak"] and needs["seconds"] > 0 and needs["parameters"] == 458_752
