"""What is measured of a machine and of a model, in processes as workers are."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from trainings import open_dataset, training

from pipelines.config import Config
from pipelines.costs.config_costs import config_costs
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError
from pipelines.planner.calibration import fit_link, fit_shards, time_messages, time_shards
from pipelines.planner.pass_timing import TimedCase, fit_passes, time_passes
from pipelines.planner.processes import call_in_processes
from pipelines.planning.hardware import read_hardware
from pipelines.planning.layouts import ParallelLayout
from pipelines.planning.model_costs import Layer, ModelCosts
from pipelines.planning.step_time import estimate_step


def rank_and_sum(number: int) -> tuple[int, float, int]:
    total = torch.tensor([float(number + dist.get_rank())])
    dist.all_reduce(total)
    return dist.get_rank(), float(total), torch.get_num_threads()


def fail() -> None:
    raise ConfigError("one of them cannot")


def test_processes_answer_by_rank_and_are_a_group() -> None:
    assert call_in_processes(2, rank_and_sum, 10, threads=1) == [(0, 21.0, 1), (1, 21.0, 1)]
    with pytest.raises(ConfigError, match="one of them cannot"):
        call_in_processes(1, fail)


@pytest.mark.parametrize("workers", [2, 4])
def test_a_link_is_fitted_to_its_all_reduces(workers: int) -> None:
    latency, rate = 50e-6, 2e9
    points = [(size, 2 * (workers - 1) * (latency + size / workers / rate)) for size in (2**10, 2**16, 2**24)]
    assert fit_link(points, workers) == pytest.approx((latency, rate))


@pytest.mark.parametrize("workers", [2, 4])
def test_a_unit_costs_the_three_messages_that_calibration_has_fitted(workers: int) -> None:
    """The estimate of a step of a sharded model reads the sheet as calibration writes it."""
    latency, rate = 1e-3, 2e8
    seconds = {size: 3 * (workers - 1) * (latency + size / workers / rate) for size in (2**10, 2**16, 2**24)}
    assert fit_shards(list(seconds.items()), workers) == pytest.approx((latency, rate))
    fields = {"shard_latency_seconds": latency, "shard_bytes_per_second": rate, "devices_per_machine": workers, "contention": 1.0}
    hardware = read_hardware("cpu2").model_copy(update=fields)
    model = ModelCosts("units", tuple(Layer(f"unit {number}", 1, 2**14) for number in range(3)))
    layout = ParallelLayout(shard=workers, microbatch=8, precision="fp32")
    assert estimate_step(model, hardware, layout).communication_seconds == pytest.approx(3 * seconds[2**16], rel=0.01)


def test_sharded_units_of_two_processes_are_timed() -> None:
    points = call_in_processes(2, time_shards)[0]
    assert [size for size, _ in points] == sorted(size for size, _ in points)
    assert points[-1][1] > points[0][1] > 0


def test_messages_of_two_processes_are_timed() -> None:
    for points in time_messages(2).values():
        assert [size for size, _ in points] == sorted({size for size, _ in points})
        assert points[-1][1] > points[0][1] > 0


@pytest.mark.parametrize(("constant", "per_row", "update"), [(0.002, 1e-5, 0.001), (0.0, 1e-3, 0.0), (0.1, 0.0, 0.5)])
def test_steps_are_explained_by_passes_and_rows(constant: float, per_row: float, update: float) -> None:
    cases = [TimedCase(rows, passes) for rows in (8, 64) for passes in (1, 2)]
    passes = fit_passes(cases, [update + case.passes * (constant + per_row * case.rows) for case in cases], 1.0)
    assert (passes.constant_seconds, passes.row_seconds, passes.update_seconds) == pytest.approx((constant, per_row, update), abs=1e-9)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Version]:
    config = training(tmp_path_factory.mktemp("timed"), rows=2_000, global_batch=256, shards=8, task={"hidden": [256, 256]})
    return config, open_dataset(config)


@pytest.mark.parametrize("strategy", ["ddp", "exact"])
def test_passes_of_a_model_are_timed(dataset: tuple[Config, Version], strategy: str) -> None:
    config, version = dataset
    passes = time_passes(config, version, config_costs(config, version), workers=1, strategy=strategy)
    assert 0 < passes.pass_seconds(256) < 1 and passes.pass_seconds(256) >= passes.pass_seconds(8)
    assert passes.loader_rows_per_second > 1_000 and 2e8 < passes.process_bytes < 2e9


@pytest.mark.parametrize(("global_batch", "normed"), [(16, True), (24, False)])
def test_no_timed_pass_has_a_single_row(tmp_path: Path, global_batch: int, normed: bool) -> None:
    """Batch norm refuses one in training."""
    config = training(tmp_path, rows=256, global_batch=global_batch, task={"hidden": [8], "batch_norm": normed})
    version = open_dataset(config)
    assert time_passes(config, version, config_costs(config, version), 1, "ddp").pass_seconds(8) > 0


def test_too_few_rows_cannot_be_timed(dataset: tuple[Config, Version]) -> None:
    config, version = dataset
    large = config.model_copy(update={"train": config.train.model_copy(update={"global_batch": 2_000})})
    with pytest.raises(ConfigError, match="two passes of 2000 rows cannot be timed with the 2000 rows of split train; lower"):
        time_passes(large, version, config_costs(config, version), 1, "ddp")
