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
from pipelines.planner.calibration import fit_exchange
from pipelines.planner.divided_models import TimedExchange, time_activations, time_microbatches, time_shards
from pipelines.planner.pass_timing import TimedCase, fit_passes, time_passes
from pipelines.planner.processes import call_in_processes
from pipelines.planning.hardware import Exchange, Hardware, read_hardware
from pipelines.planning.layouts import ParallelLayout
from pipelines.planning.model_costs import Layer, ModelCosts, TensorMessage
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


LATENCY, RATE, ONCE = 1e-3, 2e8, 5e-3
"""Of a message, in seconds and bytes a second, and what a step takes once."""


def ring_seconds(size: int, workers: int) -> float:
    """Seconds of an all-gather of so many bytes."""
    return (workers - 1) * (LATENCY + size / workers / RATE)


def exchange_seconds(exchanged: str, size: int, workers: int) -> float:
    """Seconds of an exchange: a unit is gathered twice, and its gradients are scattered; a sum is scattered and gathered."""
    rings = {"shards": 3, "links": 2, "sums": 2, "activations": 2}
    return rings[exchanged] * ring_seconds(size, workers) if exchanged in rings else LATENCY + size / RATE


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("exchanged", ["links", "sums"])
def test_an_all_reduce_is_fitted_as_messages_of_a_ring(exchanged: str, workers: int) -> None:
    timed = [TimedExchange(size, 1, exchange_seconds(exchanged, size, workers)) for size in (2**10, 2**16, 2**24)]
    fitted = {"latency_seconds": LATENCY, "bytes_per_second": RATE, "step_seconds": 0.0}
    assert fit_exchange(exchanged, timed, workers) == pytest.approx(fitted)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("exchanged", ["shards", "activations", "microbatches"])
def test_an_exchange_of_a_divided_model_is_fitted_with_what_a_step_takes_once(exchanged: str, workers: int) -> None:
    cases = [(size, count) for size in (2**10, 2**16, 2**24) for count in (1, 4)]
    timed = [TimedExchange(size, count, ONCE + count * exchange_seconds(exchanged, size, workers)) for size, count in cases]
    fitted = {"latency_seconds": LATENCY, "bytes_per_second": RATE, "step_seconds": ONCE}
    assert fit_exchange(exchanged, timed, workers) == pytest.approx(fitted)


def measured_machine(devices: int) -> Hardware:
    """A machine of so many cores, on which all exchanges of divided models take the same."""
    exchange = Exchange(latency_seconds=LATENCY, bytes_per_second=RATE, step_seconds=ONCE)
    exchanges = {"shards": exchange, "activations": exchange, "microbatches": exchange}
    fields = {"exchanges": exchanges, "devices_per_machine": devices, "contention": 1.0}
    return read_hardware("cpu2").model_copy(update=fields)


@pytest.mark.parametrize("workers", [2, 4])
def test_a_step_of_a_sharded_model_has_the_messages_that_calibration_has_fitted(workers: int) -> None:
    model = ModelCosts("units", tuple(Layer(f"unit {number}", 1, 2**14) for number in range(3)))
    layout = ParallelLayout(shard=workers, microbatch=8, precision="fp32")
    estimate = estimate_step(model, measured_machine(workers), layout)
    assert estimate.communication_seconds == pytest.approx(ONCE + 3 * exchange_seconds("shards", 2**16, workers), rel=0.01)


@pytest.mark.parametrize("workers", [2, 4])
def test_a_step_of_a_tensor_group_has_the_sums_that_calibration_has_fitted(workers: int) -> None:
    sums = (TensorMessage("forward", 2**10), TensorMessage("backward", 2**10))
    model = ModelCosts("layers", tuple(Layer(f"layer {number}", 1, 2**14, tensor_messages=sums) for number in range(3)))
    layout = ParallelLayout(tensor=workers, microbatch=8, precision="fp32")
    estimate = estimate_step(model, measured_machine(workers), layout)
    assert estimate.communication_seconds == pytest.approx(ONCE + 6 * 2 * ring_seconds(2**13, workers), rel=0.2)


def test_a_step_of_a_pipeline_has_the_messages_that_calibration_has_fitted() -> None:
    model = ModelCosts("layers", tuple(Layer(f"layer {number}", 1, 2**14, output_bytes=2**10) for number in range(4)))
    layout = ParallelLayout(pipeline=2, microbatch=16, microbatches=4, precision="fp32")
    estimate, free = (estimate_step(model, hardware, layout) for hardware in (measured_machine(2), read_hardware("cpu2")))
    messages = 2 * 4 * exchange_seconds("microbatches", 4 * 2**10, 2)
    assert estimate.bubble_seconds == pytest.approx(messages, rel=0.2)
    assert estimate.communication_seconds - free.communication_seconds == pytest.approx(ONCE)


def time_small_exchanges() -> list[list[TimedExchange]]:
    return [time_shards((8, 512)), time_activations((8, 4096)), time_microbatches((4, 64))]


def test_exchanges_of_divided_models_are_timed_between_two_processes() -> None:
    shards, activations, microbatches = call_in_processes(2, time_small_exchanges)[0]
    for timed in (shards, activations, microbatches):
        assert len({exchange.size for exchange in timed}) == len({exchange.count for exchange in timed}) == 2
        assert all(exchange.seconds > 0 for exchange in timed)
    assert shards[-1].seconds > shards[0].seconds and activations[-1].seconds > activations[0].seconds, "more of them, and larger ones"


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
