"""Looks at the workers of a live training: where each is, how fast it goes, and its stack, by py-spy.

A worker on another machine is looked at by a task on its Ray node, which RAY_ADDRESS must then reach.
"""

import logging
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipelines.errors import TrainingError
from pipelines.monitor.worker_heartbeat import WorkerBeat, describe_position
from pipelines.monitor.worker_monitor import read_beats
from pipelines.train.checkpoint.run_directory import PROGRESS, RunDirectory

STACK_SECONDS = 20.0
OLD_SECONDS = 20.0
"""An older beat is that of a worker which no longer writes: one is written every five seconds at least."""
_NEEDS = (
    "py-spy may not read the process; run this as the user who trains, or as root; where ptrace is refused to others than a parent, "
    "`sysctl kernel.yama.ptrace_scope=0` allows it, and in a container `--cap-add SYS_PTRACE` or `capabilities: {add: [SYS_PTRACE]}`"
)


def describe_workers(directory: RunDirectory) -> Iterator[str]:
    """Yield lines about every worker whose heartbeat is in the directory. Raises TrainingError if there is none."""
    beats = read_beats(directory)
    if not beats:
        raise TrainingError(f"{directory.uri} has no heartbeat of a worker; name a run that trains, or the folder of one")
    progress = directory.glance(PROGRESS) or {}
    if progress:
        metrics = progress.get("metrics", {})
        rate = f", {metrics['train/rows_per_second']:,.0f} rows/s" if "train/rows_per_second" in metrics else ""
        yield f"step {progress['step']:,} of {progress['steps']:,}, epoch {progress['epoch']} of {progress['epochs']}{rate}"
    for rank, beat in beats.items():
        yield f"\n{describe_worker(rank, beat, time.time())}"
        yield remote_stack(beat) if beat.host != socket.gethostname() else stack(beat.process)


def describe_worker(rank: int, beat: WorkerBeat, now: float) -> str:
    per_step = ", ".join(f"{phase} {seconds / beat.steps:.3g}" for phase, seconds in beat.seconds.items() if beat.steps and seconds)
    age = now - beat.time
    silent = f"\n  silent for {age:.0f} s: it has ended, is stopped, or its machine is unreachable" if age > OLD_SECONDS else ""
    return (
        f"worker {rank}: process {beat.process} on {beat.host}, for {beat.phase_seconds:.3g} s {describe_position(beat)}"
        f"{', waiting for others' if beat.waits else ''}"
        f"{f'{chr(10)}  seconds per step: {per_step}' if per_step else ''}{silent}"
    )


def stack(process: int) -> str:
    """The stacks of all threads of a process on this machine; or why there are none."""
    command = shutil.which("py-spy", path=os.pathsep.join([sysconfig.get_path("scripts"), str(Path(sys.executable).parent), os.defpath]))
    if command is None:
        return f"  no stack: py-spy is not installed on {socket.gethostname()}; pip install 'lockstep-pipelines[look]'"
    try:
        answer = subprocess.run(
            [command, "dump", "--nonblocking", "--pid", str(process)], capture_output=True, text=True, timeout=STACK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"  no stack: py-spy did not answer within {STACK_SECONDS:.0f} s"
    if answer.returncode:
        is_refused = "permission" in answer.stderr.lower() or "ptrace" in answer.stderr.lower()
        return f"  no stack: {_NEEDS if is_refused else answer.stderr.strip() or f'py-spy ended with {answer.returncode}'}"
    return "\n".join(f"  {line}" for line in answer.stdout.rstrip().splitlines())


def remote_stack(beat: WorkerBeat) -> str:
    """Return the stacks of a worker's threads, from a task on its Ray node; or why there are none."""
    if not os.environ.get("RAY_ADDRESS"):
        return f"  no stack: it is on another machine; set RAY_ADDRESS to the Ray cluster of the training, or run this on {beat.host}"
    try:
        if not ray.is_initialized():
            ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level=logging.ERROR)
        placement = NodeAffinitySchedulingStrategy(beat.node, soft=False)
        task = ray.remote(stack).options(num_cpus=0, scheduling_strategy=placement).remote(beat.process)
        return str(ray.get(task, timeout=2 * STACK_SECONDS))
    except GetTimeoutError:
        return f"  no stack: its node {beat.node[:12]} did not run a task within {2 * STACK_SECONDS:.0f} s"
    except (RayError, ConnectionError, RuntimeError, ValueError) as error:
        return f"  no stack: {next(iter(str(error).splitlines()), type(error).__name__)}"
