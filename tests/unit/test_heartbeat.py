"""A collective operation that times out names the worker it waited for, and where that is."""

import os
import queue
import re
import signal
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Event
from traceback import FrameSummary
from typing import Any

import pytest
import torch
import torch.distributed as dist
from groups import run_group
from torch import Tensor

from pipelines.errors import TrainingError
from pipelines.monitor import worker_monitor as worker_watch
from pipelines.monitor.worker_heartbeat import Heartbeat, _current_line
from pipelines.strategies.sharded.settings import Degrees
from pipelines.strategies.sharded.stages import receive
from pipelines.strategies.sharded.tensor_and_context import device_mesh
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.step_clock import StepClock
from pipelines.train.workers import WorkerContext

pytestmark = pytest.mark.slow

TIMEOUT = 4.0


def dawdle() -> None:
    time.sleep(TIMEOUT + 3)


def await_data() -> None:
    """As the loader does, in a queue that its thread has nothing for."""
    with suppress(queue.Empty):
        queue.Queue[int]().get(timeout=TIMEOUT + 3)


class Hung(torch.autograd.Function):
    """An operation whose backward pass does not come back."""

    @staticmethod
    def forward(_: Any, values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        dawdle()
        return gradient


def hang_in_backward() -> None:
    Hung.apply(torch.ones(1, requires_grad=True)).backward()


def stop() -> None:
    """This whole process, threads and all, until somebody wakes it."""
    waker = os.fork()
    if waker == 0:
        time.sleep(TIMEOUT + 3)
        os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os.waitpid(waker, 0)


def held_up(context: WorkerContext, folder: str, how: str) -> None:
    """Worker 1 does not come to the second step."""
    group = dist.new_group(timeout=timedelta(seconds=0.8 * TIMEOUT))
    with Heartbeat(RunDirectory(folder), context, TIMEOUT) as heartbeat:
        for step in (1, 2):
            heartbeat.step = step
            if context.rank == 1 and step == 2:
                {"data": await_data, "backward": hang_in_backward, "stop": stop}[how]()
            else:
                dist.all_reduce(torch.ones(1), group=group)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        pytest.param("data", r"in await_data \(.*test_heartbeat.py:\d+\), which is busy with something else", marks=pytest.mark.full),
        pytest.param("backward", r"in dawdle \(.*test_heartbeat.py:\d+\), which is busy with something else", marks=pytest.mark.full),
        ("stop", "no longer answers"),
    ],
)
def test_a_stuck_collective_names_the_worker_it_waits_for(tmp_path: Path, how: str, message: str) -> None:
    first, _, last = run_group(3, tmp_path / "group", held_up, str(tmp_path / "run"), how)
    for error in (first, last):
        assert isinstance(error, TrainingError), error
        assert re.search(rf"a collective operation waited 3.2 s for worker 1 .*{message}", str(error)), error
    diagnostics = RunDirectory(str(tmp_path / "run")).get_json("hung/0.json")
    assert diagnostics is not None and "waited 3.2 s for worker 1" in diagnostics["told"] and diagnostics["step"] == 2
    *_, awaited = diagnostics["last_collectives"]
    assert (awaited["profiling_name"], awaited["input_sizes"], awaited["collective_seq_id"]) == ("gloo:all_reduce", [[1]], 2)


def held_up_in_a_pipeline(context: WorkerContext, folder: str) -> None:
    """The second worker of each pipeline does not send what the first waits for."""
    group = device_mesh(Degrees(1, 2, 2, 1, 1), context, TIMEOUT).get_group("pipeline")
    with Heartbeat(RunDirectory(folder), context, TIMEOUT):
        dawdle() if context.rank % 2 else receive(1, group, context.device)


def test_a_stuck_pipeline_names_the_worker_it_waits_for(tmp_path: Path) -> None:
    error, *_ = run_group(4, tmp_path / "group", held_up_in_a_pipeline, str(tmp_path / "run"))
    assert re.search(r"a collective operation waited 3.2 s for worker 1 in dawdle \(.*, which is busy with something else", str(error)), (
        error
    )


@pytest.mark.parametrize("name", ["recv", "send", "recv_object_list", "_wait_batch_p2p", "wait_tensor", "all_gather", "backward"])
def test_a_worker_in_a_collective_waits_for_others(name: str) -> None:
    own_line = FrameSummary("pipelines/strategies/sharded/stages.py", 90, "run")
    torch_s = FrameSummary("/lib/site-packages/torch/distributed/distributed_c10d.py", 10, name)
    assert _current_line([own_line, torch_s]) == (own_line, True)
    assert _current_line([own_line, FrameSummary("/lib/site-packages/torch/nn/modules/linear.py", 10, "forward")]) == (own_line, False)


def fails(context: WorkerContext, folder: str) -> None:
    with Heartbeat(RunDirectory(folder), context, TIMEOUT):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def test_other_errors_pass(tmp_path: Path) -> None:
    for error in run_group(2, tmp_path / "group", fails, str(tmp_path / "run")):
        assert "mat1 and mat2" in str(error) and not isinstance(error, TrainingError)


class Slow(RunDirectory):
    """Beats of a worker that is well take long to write."""

    def put_json(self, name: str, values: dict[str, Any], durable: bool = True) -> None:
        if not values["failed"]:
            time.sleep(0.2)
        super().put_json(name, values, durable)


def test_the_last_beat_is_that_of_the_failure(tmp_path: Path) -> None:
    folder = Slow(str(tmp_path))
    with pytest.raises(RuntimeError, match="mat1"), Heartbeat(folder, WorkerContext(0, 2), TIMEOUT) as heartbeat:
        time.sleep(1.5 * heartbeat._seconds)  # into a beat
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    time.sleep(0.4)
    assert folder.get_json("heartbeats/0.json")["failed"]


class Noticed(RunDirectory):
    """Tells of the first beat in a step, once it is written."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.beat_in_step = Event()

    def put_json(self, name: str, values: dict[str, Any], durable: bool = True) -> None:
        super().put_json(name, values, durable)
        if values["steps"]:
            self.beat_in_step.set()


def test_a_heartbeat_says_where_a_worker_is(tmp_path: Path) -> None:
    """Of a worker alone too, for whoever wants to look at it."""
    clock, run = StepClock(), Noticed(str(tmp_path))
    with Heartbeat(run, WorkerContext(machine="node"), 0.2) as heartbeat:
        heartbeat.watch(clock, lambda: 8)
        heartbeat.step = 41
        clock.start_step()
        assert run.beat_in_step.wait(60), "no beat in a step within 60 s"
        beat = worker_watch.read_beats(RunDirectory(str(tmp_path)))[0]
    assert (beat.process, beat.node, beat.world_size, beat.step, beat.steps, beat.shards) == (os.getpid(), "node", 1, 41, 1, 8)
    assert (beat.phase, beat.waits) == ("forward", False) and 0 < beat.phase_seconds < 60
    assert "test_a_heartbeat_says" in beat.place
