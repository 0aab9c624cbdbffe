"""The training functions of Ray Train on every worker: one builds the loop and runs it, the other trains a run again and compares every
step with the run's digest log.

Importing MLflow takes two seconds of CPU time, so only workers that use it do.
"""

import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import ray.train
import ray.train.torch
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import HashStore  # type: ignore[attr-defined]  # documented, and not in its list of names

from pipelines import config as configs
from pipelines.config import Config
from pipelines.errors import ConfigError, CorruptError, DriftError, LockstepError, MismatchError, NonFiniteError
from pipelines.launch.assignment import Assignment
from pipelines.launch.reports import Gauges, RankZeroReports, Reports, TrackedReports
from pipelines.monitor.profile import PROFILE, StepProfiler
from pipelines.monitor.worker_heartbeat import Heartbeat
from pipelines.runtime.compat.ray_train import quiet_reports
from pipelines.runtime.environment import describe_disagreement, installed_versions
from pipelines.runtime.imports import import_modules
from pipelines.runtime.weights import digests, from_bytes, model_digest, to_bytes
from pipelines.tasks.base import Task
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoint_record import DigestLog, describe_machine, differing_tensors
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import FAILURE, INITIAL, WEIGHTS, RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import total_steps
from pipelines.train.step_statistics import Flags, StepResult
from pipelines.train.strategy import Strategy, create_strategy
from pipelines.train.workers import COLLECTIVE_SHARE, WorkerContext, all_gather_object

LAST_WORDS_SECONDS = 5.0
"""Time to send the remaining metrics after training; the driver sends the rest."""


def train_on_worker(settings: dict[str, Any]) -> dict[str, Any]:
    """Ray Train's training function: `settings` holds an Assignment, and handles of the actors that the strategy has besides workers.

    Returns `Trained` as a dict, with the metrics that could not be sent; or, under `failure`, an error that another attempt
    would repeat.
    """
    return run_attempt(settings["assignment"], partial(_train, settings["actors"]))


def run_attempt(assignment: Assignment, train: Callable[[Assignment, RunDirectory], dict[str, Any]]) -> dict[str, Any]:
    """Call `train` and return its result; or, under `failure`, an error that another attempt would repeat."""
    quiet_reports()
    directory = RunDirectory(assignment.directory)
    if failure := directory.get_json(FAILURE):
        return {"failure": failure}
    if assignment.backend:
        dist.init_process_group(assignment.backend, store=HashStore(), rank=0, world_size=1)
    try:
        check_installed(assignment)
        return train(assignment, directory)
    except (DriftError, NonFiniteError) as error:  # all workers raise it at the same step
        return {"failure": describe_failure(error)}
    except (ConfigError, CorruptError, MismatchError) as error:
        directory.put_json(FAILURE, describe_failure(error))
        raise
    finally:
        # The threads of a single worker's group would live until the interpreter ends. Ray destroys all other groups.
        if dist.is_initialized() and dist.get_world_size() == 1:
            dist.destroy_process_group()


def check_installed(assignment: Assignment) -> None:
    """Raise MismatchError if this machine has other versions than the driver's."""
    versions = installed_versions([name for name in assignment.installed_versions if name != "Python"])
    if disagreement := describe_disagreement(assignment.installed_versions, versions, f"the worker on {socket.gethostname()}"):
        raise MismatchError(disagreement)


def describe_failure(error: LockstepError) -> dict[str, str]:
    return {"kind": type(error).__name__, "message": str(error)}


def _train(actors: Sequence[Any], assignment: Assignment, directory: RunDirectory) -> dict[str, Any]:
    config, context = config_and_context(assignment)
    with _node_metrics(config, assignment), Heartbeat(directory, context, config.train.timeout_seconds) as heartbeat:
        task, strategy, checkpoints = prepare_training(config, assignment, directory, context)
        is_first = context.rank == 0
        reports = _create_reports(config, assignment, directory, heartbeat, context) if is_first else Reports(directory, heartbeat)
        unsent: list[Any] = []
        profiler = StepProfiler(
            config.train.profile,
            strategy.clock,
            context.device,
            context.rank,
            put=lambda name, content: directory.put(f"{PROFILE}/{name}", content),
        )
        reports.begins = profiler.begin
        heartbeat.watch(strategy.clock, lambda: len(strategy.mesh.worker_shards(config.train.shards)))
        try:
            strategy.connect(actors)
            trained = Loop(config, assignment.version, task, strategy, checkpoints, reports, assignment.pause_epoch).run()
            if isinstance(reports, TrackedReports):
                reports.note_end(trained.steps)
            if trained.finished and (weights := strategy.weights()):
                directory.put_with_checksum(WEIGHTS, to_bytes(weights))
        finally:
            profiler.close()
            if isinstance(reports, TrackedReports):
                unsent = reports.finish(LAST_WORDS_SECONDS)
        return {**asdict(trained), "unsent": unsent}


def config_and_context(assignment: Assignment) -> tuple[Config, WorkerContext]:
    """The config, and this worker's rank, world size, device and machine."""
    config = configs.parse(assignment.config, assignment.config["name"], recorded=True)
    context = ray.train.get_context()
    torch.set_num_threads(config.train.cpus_per_worker)
    machine = ray.get_runtime_context().get_node_id()
    return config, WorkerContext(context.get_world_rank(), context.get_world_size(), ray.train.torch.get_device(), machine)


def prepare_training(
    config: Config, assignment: Assignment, directory: RunDirectory, context: WorkerContext
) -> tuple[Task, Strategy, Checkpoints]:
    """Create what a loop needs."""
    settings = config.train
    task = build_task(config.task, assignment.version.manifest)
    strategy = create_strategy(settings, task, context, partial(_initial_weights, directory) if config.starts_from_weights else None)
    timeout_seconds = COLLECTIVE_SHARE * settings.timeout_seconds
    flags = settings.strategy.flags_for_one_worker(settings)
    return task, strategy, Checkpoints(directory, context, settings.checkpoint.keep, timeout_seconds, flags)


def _initial_weights(directory: RunDirectory) -> dict[str, Tensor]:
    """Read the weights that the driver has copied from elsewhere. Raises CorruptError if they are gone."""
    content = directory.get_with_checksum(INITIAL)
    if content is None:
        raise CorruptError(f"{directory.path}/{INITIAL} is gone, from which the run started; restore the file")
    return from_bytes(content)


def _create_reports(
    config: Config, assignment: Assignment, directory: RunDirectory, heartbeat: Heartbeat, context: WorkerContext
) -> TrackedReports:
    from pipelines import tracking

    sender = tracking.Sender(config.tracking.uri, assignment.run_id, config.tracking.log_every_seconds)
    steps = total_steps(config, assignment.version.rows("train"))
    gauges = Gauges(config.name, assignment.run_id, steps)
    return TrackedReports(directory, heartbeat, sender, gauges, steps, config.train.epochs, context.world_size)


def _node_metrics(config: Config, assignment: Assignment) -> AbstractContextManager[None]:
    """Log the node's system metrics, on one worker of each node. Raises TrackingError if the node cannot reach the driver's MLflow."""
    if ray.train.get_context().get_local_rank():
        return nullcontext()
    import_modules(["pipelines.tracking"])
    from pipelines import tracking

    tracking.check_host(config.tracking.uri, assignment.driver_host)
    return tracking.system_metrics(config.tracking.uri, assignment.run_id, socket.gethostname())


@dataclass
class ReplayComparison:
    """Steps compared with a digest log, and the first differences; the same on all workers."""

    losses: int = 0
    """Steps whose losses were compared."""
    saved: list[int] = field(default_factory=list)
    """Steps after which model and optimizer were compared."""
    loss: tuple[int, float, float] | None = None
    """The first step whose loss differs, its logged loss, and its loss now."""
    tensors: tuple[int, list[str]] | None = None
    """The first of `saved` after which tensors differ, and their names, those of the model first."""


class ReplayCheck:
    """Takes the place of a strategy's `step`, and compares every step with a digest log. It raises the stop flag once the comparison is
    done."""

    def __init__(self, strategy: Strategy, digest_log: DigestLog, steps: int | None) -> None:
        """The comparison is done after `steps` steps, or at the first saved step that shows a difference."""
        self._strategy, self._take_step, self._digest_log, self._steps = strategy, strategy.step, digest_log, steps
        self.comparison, self.is_done = ReplayComparison(), False
        strategy.step = self.step  # type: ignore[method-assign]

    def step(self, batch: Any, number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        flags = replace(flags, stop=flags.stop or self.is_done)
        result = self._take_step(batch, number, rate, flags, compute_grad_norm)
        if not self.is_done:
            self._compare(number + 1, float(result.loss_sum))
        return result

    def _compare(self, step: int, loss: float) -> None:
        comparison, logged_loss = self.comparison, self._digest_log.losses.get(step)
        if logged_loss is not None:
            comparison.losses += 1
            if comparison.loss is None and logged_loss != loss:
                comparison.loss = (step, logged_loss, loss)
        if (saved := self._digest_log.digests.get(step)) is not None:
            comparison.saved.append(step)
            differing = differing_tensors(all_gather_object(digests(self._strategy.state_dict())), saved)
            if differing:
                comparison.tensors = (step, differing)
            self.is_done = bool(differing or comparison.loss)
        self.is_done = self.is_done or step == self._steps


def replay(settings: dict[str, Any]) -> dict[str, Any]:
    """Ray Train's training function of a verification: `settings` holds an Assignment, a DigestLog and the number of steps.

    Returns `Trained` as a dict, with `comparison`, the machine and the model's digest; empty if the driver asked to stop.
    """
    return run_attempt(settings["assignment"], partial(_replay, settings["digest_log"], settings["steps"]))


def _replay(digest_log: DigestLog, steps: int | None, assignment: Assignment, directory: RunDirectory) -> dict[str, Any]:
    config, context = config_and_context(assignment)
    with Heartbeat(directory, context, config.train.timeout_seconds) as heartbeat, ExitStack() as stack:
        task, strategy, checkpoints = prepare_training(config, assignment, directory, context)
        check = ReplayCheck(strategy, digest_log, steps)
        reports = Reports(directory, heartbeat)
        if context.rank == 0:
            total = total_steps(config, assignment.version.rows("train"))
            reports = stack.enter_context(closing(RankZeroReports(directory, heartbeat, total, config.train.epochs)))
        trained = Loop(config, assignment.version, task, strategy, checkpoints, reports).run()
    if not (trained.finished or check.is_done):  # the driver asked to stop
        return {}
    weights = strategy.weights() if trained.finished else {}
    digest = model_digest(weights) if weights else ""
    return {**asdict(trained), "comparison": check.comparison, "machine": describe_machine(context.device), "digest": digest}
