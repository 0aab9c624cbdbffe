"""The replay check, on the workers: trains a run again, and compares every step with the run's digest log."""

from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from pipelines.launch.assignment import Assignment
from pipelines.launch.reports import RankZeroReports, Reports
from pipelines.launch.worker import config_and_context, prepare_training, run_attempt
from pipelines.monitor.heartbeat import Heartbeat
from pipelines.runtime.weights import digests, model_digest
from pipelines.train.checkpoint.checkpoint_record import DigestLog, describe_machine, differing_tensors
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.reduce.context import all_gather_object
from pipelines.train.run_context import total_steps
from pipelines.train.step_statistics import Flags, StepResult
from pipelines.train.strategy import Strategy


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
