"""Benchmarks run, and their results say what was measured. How fast it was is for a quiet machine to say."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def results(folder: Path, benchmark: str, *arguments: str, name: str) -> dict[str, Any]:
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", "--small", "--results", folder, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment) as process:
        try:
            output, errors = process.communicate()
        finally:
            process.terminate()  # it ends what it started
    assert process.returncode == 0, errors
    (file,) = folder.glob(f"{name}-*.json")
    assert output.splitlines()[-1] == str(file)
    return json.loads(file.read_text())


def test_the_loaders_tables_have_their_rows_and_positive_numbers(tmp_path: Path) -> None:
    found = results(tmp_path, "loader.against_peers", "--no-peers", "--tables", "narrow", "resume", "memory", "planning", name="loader")
    assert {"torch", "pyarrow"} <= found["versions"].keys()
    assert found["machine"]["cores"] >= 1
    tables = found["tables"]
    rates = {row["loader"]: row["rows/s"] for row in tables["narrow"]}
    assert {"bare Parquet decode", "Lockstep, first epoch", "Lockstep, later epochs", "Lockstep, cache off"} < rates.keys()
    assert all(rate > 0 for rate in rates.values())
    assert all(row["at 0 %, s"] > 0 and row["at 99 %, s"] > 0 for row in tables["resume"])
    assert [row["rows"] for row in tables["memory"]] == [10_000, 100_000]
    assert all(row["peak MiB"] < row["stated bound MiB"] for row in tables["memory"])
    assert all(row["plan, s"] > 0 and row["open, s"] > 0 for row in tables["planning"])


def test_shuffle_quality_tells_a_shuffle_from_none(tmp_path: Path) -> None:
    tables = results(tmp_path, "loader.shuffle_quality", name="shuffle_quality")["tables"]
    ks_distance = {row["order"]: row["KS distance"] for row in tables["orders"]}
    assert ks_distance["full permutation"] < ks_distance["Lockstep, window 64"] < ks_distance["Lockstep, window 4"]
    assert ks_distance["Lockstep, window 4"] < 0.5 < ks_distance["shuffle buffer of 10 batches"]
    for row in tables["learning"]:
        assert row["Lockstep, window 16"] == pytest.approx(row["full permutation"], rel=0.3)
        assert row["as they lie"] > 2 * row["Lockstep, window 4"]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_etl_is_measured_beside_a_job_written_by_hand(tmp_path: Path, kind: str) -> None:
    (rows,) = results(tmp_path, "etl.against_by_hand", "--format", kind, "--folder", str(tmp_path / "work"), name="etl")["tables"].values()
    assert [row["job"] for row in rows] == ["by hand", "ours"]
    assert rows[0]["ratio"] == 1 and all(row["seconds"] > 0 for row in rows)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["pictures", "texts"])
def test_etl_of_small_files_is_measured_beside_one_file_and_a_job_written_by_hand(tmp_path: Path, kind: str) -> None:
    (rows,) = results(tmp_path, "etl.small_files", "--kind", kind, "--folder", str(tmp_path / "work"), name=f"etl-small-{kind}")[
        "tables"
    ].values()
    assert [row["job"] for row in rows] == ["by hand", "ours, one file", "ours, many files"]
    assert rows[0]["ratio"] == 1 and all(row["seconds"] > 0 for row in rows)


@pytest.mark.timeout(900)
def test_training_is_measured_beside_a_bare_script_and_ray_s_own_way(tmp_path: Path) -> None:
    (rows,) = results(tmp_path, "train.against_bare", "--cases", "MLP 4 x 1,024 on 100 columns", name="train")["tables"].values()
    assert [row["loop"] for row in rows] == ["ours", "ours, without Ray", "bare DDP, in memory", "Ray Data, prepare_model"]
    assert all(row["rows/s"] > 0 for row in rows)
    assert all(row["of bare"] > 0 for row in rows)
    assert all(float(row["launches"]) == pytest.approx(row["of bare"], abs=1e-3) for row in rows[:2]), "of one launch"


@pytest.mark.timeout(900)
def test_the_gpu_benchmark_runs_on_processors_in_its_small_form(tmp_path: Path) -> None:
    meeting, training, tracking = results(tmp_path, "gpu.training", name="gpu-small")["tables"].values()
    assert meeting[0]["GB/s"] > 0
    assert {(row["model"], row["precision"]) for row in training} == {
        (model, precision) for model in ("ResNet-18", "MLP") for precision in ("fp32", "bf16", "fp16")
    }
    assert all(row["rows/s"] > 0 for row in training)
    assert [row["model"] for row in tracking] == ["ResNet-18", "MLP"]
