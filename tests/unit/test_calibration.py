"""What is measured of a machine and of a model, in processes as workers are."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import yaml
from trainings import open_dataset, training

from pipelines.config import Config
from pipelines.costs.config_costs import config_costs
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError
from pipelines.planner import calibration
from pipelines.planner.calibration import fit_messages
from pipelines.planner.divided_models import TimedMessages, time_activations, time_microbatches, time_shards
from pipelines.planner.pass_timing import TimedCase, choose_cases, fit_passes, smallest_case, time_passes
from pipelines.planner.plan import PlanRequest, make_plan
from pipelines.planner.processes import call_in_processes
from pipelines.planning.hardware import SHEETS, Exchange, Hardware, read_hardware
from pipelines.planning.layouts import ParallelLayout
from pipelines.planning.model_costs import Layer, ModelCosts, TensorMessage, convert_precision
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


def time_messages(message_bytes: float, messages: int) -> float:
    return messages * (LATENCY + message_bytes / RATE)


def test_what_messages_take_is_fitted_with_what_a_step_takes_once() -> None:
    cases = [(size, count) for size in (2**10, 2**16, 2**24) for count in (1, 4)]
    timed = [TimedMessages(size, count, ONCE + time_messages(size, count)) for size, count in cases]
    assert fit_messages(timed) == pytest.approx({"latency_seconds": LATENCY, "bytes_per_second": RATE, "step_seconds": ONCE})


def test_one_number_of_messages_tells_nothing_of_what_a_step_takes_once() -> None:
    timed = [TimedMessages(size, 6, time_messages(size, 6)) for size in (2**10, 2**16, 2**24)]
    assert fit_messages(timed) == pytest.approx({"latency_seconds": LATENCY, "bytes_per_second": RATE, "step_seconds": 0.0})


def machine_with_exchanges(devices: int) -> Hardware:
    """A machine of so many cores, on which all exchanges of divided models take the same."""
    exchange = Exchange(latency_seconds=LATENCY, bytes_per_second=RATE, step_seconds=ONCE)
    exchanges = {"shards": exchange, "activations": exchange, "microbatches": exchange}
    fields = {"exchanges": exchanges, "devices_per_machine": devices, "contention": 1.0}
    return read_hardware("cpu2").model_copy(update=fields)


def test_a_sheet_of_another_release_is_removed_and_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sheet, values = tmp_path / "here.yaml", yaml.safe_load((SHEETS / "cpu2.yaml").read_text())
    sheet.write_text(yaml.safe_dump({**values, "shard_latency_seconds": 1e-3}))
    request = PlanRequest("here", model="llama3-8b", measure=True, folder=tmp_path)
    remedy = "remove the file, and measure this machine again by `lockstep plan CONF.yaml --hardware here --measure`"
    with pytest.raises(ConfigError, match=f"here.yaml: shard_latency_seconds: .*; {remedy}"):
        make_plan(request)
    sheet.unlink()
    monkeypatch.setattr(calibration, "measure_machine", lambda cores: {"kernel_seconds": 1e-6})
    with pytest.raises(ConfigError, match="--measure times the model of a config"):  # which comes after the machine
        make_plan(request)
    assert read_hardware("here", tmp_path).kernel_seconds == 1e-6


def part_sent(total_bytes: float, workers: int) -> float:
    """Bytes that a worker of a group has of the others, of tensors of so many bytes together."""
    return total_bytes * (workers - 1) / workers


@pytest.mark.parametrize("degree", ["shard", "context"])
@pytest.mark.parametrize("workers", [2, 4])
def test_a_step_of_a_sharded_model_has_the_messages_that_calibration_has_fitted(workers: int, degree: str) -> None:
    """A unit is gathered for both passes, and its gradients are summed. A group of two takes as long on a machine measured with four."""
    model = ModelCosts("units", tuple(Layer(f"unit {number}", 1, 2**14) for number in range(3)))
    layout = ParallelLayout(**{degree: workers}, microbatch=8, precision="fp32")
    estimate = estimate_step(model, machine_with_exchanges(4), layout)
    assert estimate.communication_seconds == pytest.approx(ONCE + time_messages(part_sent(2**16, workers), 9))


@pytest.mark.parametrize("workers", [2, 4])
def test_a_step_of_a_tensor_group_has_the_sums_that_calibration_has_fitted(workers: int) -> None:
    sums = (TensorMessage("forward", 2**20), TensorMessage("backward", 2**20))
    model = ModelCosts("layers", tuple(Layer(f"layer {number}", 1, 2**14, tensor_messages=sums) for number in range(3)))
    layout = ParallelLayout(tensor=workers, microbatch=8, precision="fp32")
    estimate = estimate_step(model, machine_with_exchanges(4), layout)
    total_bytes = convert_precision(model, 4).layers[0].tensor_messages[0].bytes_per_row * 8
    assert estimate.communication_seconds == pytest.approx(ONCE + time_messages(part_sent(total_bytes, workers), 12))


@pytest.mark.parametrize("stages", [2, 4])
def test_a_step_of_a_pipeline_has_the_messages_that_calibration_has_fitted(stages: int) -> None:
    """One for each microbatch and direction, and those before the first one reaches the last stage."""
    model = ModelCosts("layers", tuple(Layer(f"layer {number}", 1, 2**14, output_bytes=2**20) for number in range(4)))
    layout = ParallelLayout(pipeline=stages, microbatch=32, microbatches=8, accumulation=2, precision="fp32")
    machine = machine_with_exchanges(4)
    estimate = estimate_step(model, machine, layout)
    unmeasured = estimate_step(model, machine.model_copy(update={"exchanges": {}}), layout)
    message_bytes = convert_precision(model, 4).layers[0].output_bytes * 4
    first_messages = 2 * (stages - 1) * (machine.link_latency_seconds + message_bytes / machine.link_bytes_per_second / 0.8)
    bubble = unmeasured.bubble_seconds - 2 * first_messages
    assert estimate.bubble_seconds == pytest.approx(bubble + 2 * time_messages(message_bytes, 2 * (8 + stages - 2)))
    assert estimate.communication_seconds - unmeasured.communication_seconds == pytest.approx(ONCE)


def time_small_exchanges() -> list[list[TimedMessages]]:
    return [time_shards((8, 512)), time_activations((8, 4096)), time_microbatches((4, 64))]


@pytest.mark.parametrize("processes", [2, 3])
def test_messages_of_divided_models_are_timed(processes: int) -> None:
    """Also where processes cannot be paired, and do not divide a width."""
    shards, activations, microbatches = call_in_processes(processes, time_small_exchanges)[0]
    assert [timed.messages for timed in shards] == [3, 12, 3, 12] and [timed.messages for timed in activations] == [4, 16, 4, 16]
    assert [timed.messages for timed in microbatches] == ([4, 16] * 2 if processes == 2 else [8, 26] * 2)
    assert shards[2].message_bytes == pytest.approx(4 * (512 * 512 + 512) * (processes - 1) / processes)
    assert activations[2].message_bytes == pytest.approx(4 * 4096 * 128 * (processes - 1) / processes)
    assert microbatches[2].message_bytes == 4 * 64 * 128
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


@pytest.mark.parametrize(("strategy", "rows"), [("ddp", 32), ("exact", 8)])
def test_memory_is_measured_with_rows_of_a_pass_where_a_strategy_fixes_them(tmp_path: Path, strategy: str, rows: int) -> None:
    config = training(tmp_path, rows=2_000, global_batch=256, shards=32, strategy={"kind": strategy})
    assert smallest_case(config, choose_cases(config, open_dataset(config), workers=1)) == TimedCase(rows, 1)


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
