"""Watches the workers from the driver: prints progress, forwards interrupts, goes on without machines that are slow or taken away, and
explains what ended the training. After a death it only hears of the new group: Ray Train starts it, as `ray_trainer` has configured it.

Whoever runs the cluster tells Ray that a machine, such as a spot instance, is about to be taken away, as `ray drain-node` and its
autoscaler do. Ray Train's own watcher is an actor that uses a core's hundredth all the time, and its answer a barrier of all workers; the
driver asks Ray's controller instead.
"""

import logging
import signal
import time
from collections.abc import Callable
from functools import partial
from threading import Thread
from types import FrameType
from typing import Any

from ray.exceptions import RayError, RayTaskError
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError, WorkerGroupError

from pipelines import errors
from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.errors import LockstepError, TrainingError
from pipelines.launch.assignment import work
from pipelines.launch.cluster import Machines, host_names, release
from pipelines.launch.layout_plan import LayoutPlan
from pipelines.launch.layout_watch import LayoutWatch
from pipelines.launch.ray_trainer import Trainer, create_trainer
from pipelines.launch.training_progress import TrainingProgress
from pipelines.monitor.worker_heartbeat import HEARTBEATS, HUNG
from pipelines.monitor.worker_monitor import WorkerMonitor, read_beats
from pipelines.runtime.compat.ray import draining_nodes
from pipelines.runtime.compat.ray_train import WorkerGroupStartupTimeoutError
from pipelines.runtime.interrupts import FirstSignal, handle_signals
from pipelines.tracking import TrainingRun
from pipelines.train.checkpoint.run_directory import ATTEMPT, DEATHS, FAILURE, LOOK_SECONDS, PROGRESS, RESERVATION, STOP, RunDirectory

log = logging.getLogger(__name__)

DRAIN_POLL_SECONDS = 2.0
_RAY_STATE = "checkpoint_manager_snapshot.json"
"""Ray's own list of checkpoints, all of which it expects to exist. We delete old checkpoints, and do not need the list."""
LEAVE_SECONDS = 120.0
"""Time for the workers to save and stop after SIGTERM, which SIGKILL usually follows. After SIGINT somebody is there to end the wait."""


def train_in_groups(
    config: Config,
    version: Version,
    run: TrainingRun,
    directory: RunDirectory,
    progress: TrainingProgress,
    plan: LayoutPlan | None = None,
    **worker_arguments: Any,
) -> dict[str, Any]:
    """Return rank 0's result. A group of workers that is slowed by machines, or is about to lose some, saves, and another starts without
    them; so does one that is better off in another layout of the `plan`."""
    left_out: tuple[str, ...] = ()
    progress.record_death = partial(run.add_line, "deaths")
    layouts = LayoutWatch(plan, directory, progress.say, run.tag) if plan else None
    while True:
        config = layouts.begin_group(config) if layouts else config
        trainer = create_trainer(work, config, version, run.run_id, directory, left_out=left_out, **worker_arguments)
        worker_monitor, preemption = WorkerMonitor(directory, progress.say, run.tag), Preemption(directory, progress.say)
        polls = [worker_monitor.poll, preemption.poll, *([layouts.poll] if layouts and not left_out else [])]
        try:
            trained = watch(trainer, directory, progress, lambda: run.set_status("KILLED"), *polls)
        except TrainingError as error:
            if layouts and layouts.moves_back(error):
                forget_messages(directory)
                continue
            raise
        leaving = () if trained["finished"] else (*trained["left_out"], *preemption.nodes)
        if leaving:
            left_out += leaving
            host_list = ", ".join(host_names(left_out))
            why = "which is about to be taken away" if preemption.nodes else "where a worker is too slow"
            progress.say(f"saved after step {trained['steps']:,}; the run goes on without {host_list}, {why}")
            run.tag({"machines.left_out": host_list})
        elif layouts and layouts.change and not trained["finished"]:
            layouts.move(trained["steps"])
        else:
            return trained
        forget_messages(directory)


def forget_messages(directory: RunDirectory) -> None:
    """Remove what an earlier group of workers, its driver and Ray have left for each other."""
    for name in (STOP, ATTEMPT, DEATHS, FAILURE, PROGRESS, HEARTBEATS, HUNG, _RAY_STATE):
        directory.remove(name)


def watch(
    trainer: Trainer, directory: RunDirectory, progress: TrainingProgress, interrupted: Callable[[], None], *polls: Callable[[], None]
) -> dict[str, Any]:
    """Run the trainer and return what rank 0 returned. Call `polls` every time that the directory is read.

    On a signal, workers that have started save and stop, and `interrupted` is called at once, since the sender of SIGTERM may
    not wait for them; then SystemExit is raised with 128 + the signal's number. Else raises the LockstepError that ended the
    training, or Ray's own error.
    """
    answer: dict[str, Any] = {}
    interrupt = FirstSignal()

    def take(number: int, frame: FrameType | None) -> None:
        is_second = interrupt.number is not None
        if interrupt.take(number) and is_second:
            raise SystemExit(128 + number)

    if trainer.scaling_config.elasticity_enabled:  # type: ignore[attr-defined]  # Ray's types are those of Train v1
        polls = (_watch_machines(trainer, directory).poll, *polls)
    thread = Thread(target=_fit, args=(trainer, answer), name="ray-train", daemon=True)
    try:
        with handle_signals(take):
            thread.start()
            while thread.is_alive() and interrupt.number is None:
                thread.join(LOOK_SECONDS[directory.is_local])
                _show(directory, progress)
                for poll in polls:
                    poll()
            if interrupt.number is not None:
                limit = None if interrupt.number == signal.SIGINT else LEAVE_SECONDS
                _leave(thread, directory, progress, interrupted, answer, limit)
                raise SystemExit(128 + interrupt.number)
    finally:
        trainer.stop()
    if failure := _failure(answer):
        raise failure
    value: dict[str, Any] = answer["value"]
    return value


def _fit(trainer: Trainer, answer: dict[str, Any]) -> None:
    """Put what rank 0 returned, or what was raised, into `answer`. Not in the main thread, where Ray would handle SIGINT itself and leave
    no time to save."""
    try:
        answer["value"] = trainer.fit().return_value  # type: ignore[attr-defined]  # as above
    except BaseException as error:  # raised in the main thread
        answer["error"] = error


def _show(directory: RunDirectory, progress: TrainingProgress) -> None:
    """Print the workers' progress. If the store fails, it is read again later; the workers raise if it fails for too long."""
    try:
        progress.show(directory.glance(PROGRESS), directory.glance(DEATHS))
    except TrainingError as error:
        log.warning("%s", error)


def _leave(
    thread: Thread,
    directory: RunDirectory,
    progress: TrainingProgress,
    interrupted: Callable[[], None],
    answer: dict[str, Any],
    limit: float | None,
) -> None:
    """Ask the workers to save and stop, wait until they have, for `limit` seconds at most, and say what is saved. If none has started to
    train, there is nothing to save."""
    directory.put(STOP, b"")  # workers that start later see it too
    if thread.is_alive() and not directory.has(ATTEMPT):
        progress.say("stopping: there is nothing to save yet")
        return
    within = "" if limit is None else f", within {limit:.0f} s"
    progress.say(f"stopping: the workers save first{within}; interrupt again to stop at once")
    interrupted()
    thread.join(limit)
    if not answer:
        progress.say(
            f"the workers have not saved within {limit:.0f} s, and what came after the last checkpoint is lost; run the same "
            "command to resume from it"
        )
    elif failure := _failure(answer):
        first_line = str(failure).partition("\n")[0] or type(failure).__name__
        progress.say(f"the training ended before it saved, and what came after the last checkpoint is lost: {first_line}")
    elif (steps := answer["value"].get("steps")) is not None:  # a verification saves nothing
        progress.say(f"stopped and saved after step {steps:,}; run the same command to resume")


def _watch_machines(trainer: Trainer, directory: RunDirectory) -> Machines:
    """Watch the machines of an elastic group, after releasing those that an earlier driver of the run still has reserved."""
    if earlier := directory.get(RESERVATION):
        release(earlier.decode())
    directory.put(RESERVATION, f"train-{trainer.train_run_context.run_id}".encode())  # type: ignore[attr-defined]  # as above
    return Machines()


def _failure(answer: dict[str, Any]) -> BaseException | None:
    """The error that ended the training, if one did: one that was raised, or that a worker described."""
    if (error := answer.get("error")) is not None:
        explained = _explain(error)
        explained.__cause__ = None if explained is error else error
        return explained
    if failure := answer["value"].get("failure"):
        kind: type[LockstepError] = getattr(errors, failure["kind"])
        return kind(failure["message"])
    return None


def _explain(error: BaseException) -> BaseException:
    """The LockstepError that a worker raised, or a TrainingError for Ray's own; a defect, Ray's or the task's, is not changed."""
    if isinstance(error, RayError) and not isinstance(error, RayTaskError):
        first_line = str(error).partition("\n")[0]
        return TrainingError(f"Ray lost the training's controller: {first_line}; run the same command to resume from the last checkpoint")
    if isinstance(error, ControllerError):
        first_line = str(error.controller_failure).partition("\n")[0]
        if isinstance(error.controller_failure, WorkerGroupStartupTimeoutError):
            return TrainingError(f"Ray has no room for the workers: {first_line}; lower train.workers or add machines")
        return TrainingError(f"Ray could not start the workers: {first_line}; run the same command to resume from the last checkpoint")
    if not isinstance(error, TrainingFailedError):
        return error
    failures = error.worker_failures if isinstance(error, WorkerGroupError) else {}
    for cause in failures.values():
        if isinstance(worker_error := getattr(cause, "_base_exc", cause), LockstepError):
            return worker_error
    if any(hasattr(cause, "_base_exc") for cause in failures.values()):
        return error
    died = "; ".join(f"worker {rank}: {str(cause).splitlines()[0]}" for rank, cause in failures.items())
    return TrainingError(
        f"workers died more often than train.max_failures allows ({died}); run the same command to resume from the last checkpoint"
    )


class Preemption:
    """Looks for machines of the group that Ray is draining, and asks the workers to save and stop when there are some."""

    def __init__(self, directory: RunDirectory, say: Callable[[str], None]) -> None:
        self._directory, self._say = directory, say
        self._last_poll = 0.0
        self.nodes: tuple[str, ...] = ()
        """Ray's ids of the machines on which workers ran when they were asked to stop."""

    def poll(self) -> None:
        """Ask Ray, if that is due. A failure is logged, and ends no training: the next poll tries again."""
        if self.nodes or time.monotonic() - self._last_poll < DRAIN_POLL_SECONDS:
            return
        self._last_poll = time.monotonic()
        try:
            if draining := draining_nodes():
                self.nodes = tuple(sorted({beat.node for beat in read_beats(self._directory).values()} & draining))
            if self.nodes:
                self._say(f"{', '.join(host_names(self.nodes))} is about to be taken away: the workers save first")
                self._directory.put(STOP, b"")
        except (TrainingError, RayError) as error:
            log.warning("%s", error)
