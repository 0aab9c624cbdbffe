"""Times a few steps of a config's model on this machine, in as many processes as there will be workers, each with rows of its own."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, repeat

import numpy as np
import torch
import torch.distributed as dist
from scipy.optimize import nnls

from pipelines.config import Config
from pipelines.config.train.strategy import StrategySettings
from pipelines.config.train.train import Train
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError
from pipelines.planner.processes import call_in_processes
from pipelines.planning.layouts import ParallelLayout
from pipelines.planning.measured import MeasuredPasses
from pipelines.planning.memory import estimate_memory
from pipelines.planning.model_costs import ModelCosts
from pipelines.tasks.bind import build_task
from pipelines.train.step_clock import peak_bytes
from pipelines.train.step_statistics import Flags, PendingSteps
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

_WARM_UP, _LEAST, _MOST = 2, 5, 30
"""Steps before those that are timed, and how many of these."""
_CASE_SECONDS = 1.5
"""For which steps of a case are timed in each round, unless they are too few."""
_ROUNDS = 2
"""Of all cases: a core of a shared machine is slower by a third for seconds at a time, and so for one case and not for another."""
UNDISTURBED = 0.25
"""The quantile of a step's seconds that counts: other programs make steps slower, and none faster."""
_READING_SECONDS = 0.5
"""After which reading alone ends."""
_RATE = 1e-6
"""Learning rate: weights stay about what they are."""
StrategyChoice = StrategySettings | str
"""A strategy by its settings, or by its name for its defaults."""


@dataclass(frozen=True)
class TimedCase:
    """A step on one worker: so many passes of so many rows."""

    rows: int
    passes: int


def time_passes(config: Config, version: Version, model: ModelCosts, workers: int, strategy: StrategyChoice) -> MeasuredPasses:
    """Time passes of the config's `model` on `version`, of the rows that a step has for each of `workers`, and of an eighth of them.

    Each worker is a process that takes all steps alone, while the others do the same: so they compete for cores and memory, and wait for
    nobody. Raises ConfigError if the training split has too few rows for a step."""
    cases = choose_cases(config, version, workers)
    smallest = smallest_case(config, cases)
    answers = call_in_processes(workers, _time_rounds, config, version, smallest, cases, strategy, threads=config.train.cpus_per_worker)
    rounds = [step_seconds(of_workers) for of_workers in zip(*(answer[0] for answer in answers), strict=True)]
    passes = fit_passes(cases, [min(seconds) for seconds in zip(*rounds, strict=True)], min(answer[1] for answer in answers))
    return replace(passes, process_bytes=process_bytes(model, smallest, max(answer[2] for answer in answers)))


def process_bytes(model: ModelCosts, case: TimedCase, peak: float) -> float:
    """Bytes of a process besides its model, of the most memory that it has had in steps of a case."""
    layout = ParallelLayout(microbatch=case.rows, full_copies=True, precision="fp32")
    return max(0.0, peak - estimate_memory(model, layout).total)


def choose_cases(config: Config, version: Version, workers: int) -> tuple[TimedCase, ...]:
    """The steps that are timed for so many workers, those with fewest rows first. Raises ConfigError if the training split has too few rows
    for one of them."""
    most = max(2, config.train.global_batch // workers // 2 * 2)
    rows = (max(2, most // 16 * 2), most)  # even, and never one: batch norm needs two, and mixed pairs an even number
    if version.rows("train") < 2 * most:
        raise ConfigError(
            f"a step of two passes of {most} rows cannot be timed with the {version.rows('train')} rows of split train; lower "
            "train.global_batch, or plan without measuring"
        )
    return tuple(TimedCase(count, passes) for count in rows for passes in (1, 2))


def smallest_case(config: Config, cases: Sequence[TimedCase]) -> TimedCase:
    """The step whose memory is measured, so that what is known of the model's explains little of it: of the fewest rows that are timed, or
    of those of a pass where the config's strategy always has as many."""
    return TimedCase(config.train.strategy.rows_per_pass(config.train) or cases[0].rows, 1)


def fit_passes(cases: Sequence[TimedCase], seconds: Sequence[float], loader_rows_per_second: float) -> MeasuredPasses:
    """The constants of passes and steps that explain the seconds of such steps best: by least squares of relative errors, none below 0."""
    terms = np.array([[case.passes, case.passes * case.rows, 1.0] for case in cases]) / np.array(seconds)[:, None]
    (constant, per_row, update), _ = nnls(terms, np.ones(len(cases)))
    return MeasuredPasses(float(constant), float(per_row), float(update), loader_rows_per_second)


def time_round(config: Config, version: Version, cases: Sequence[TimedCase], strategy: StrategyChoice) -> list[np.ndarray]:
    """Seconds of some steps of each case, float64 of shape (steps,), in one of the processes that do the same."""
    return [_time_steps(case_config(config, case, strategy), version) for case in cases]


def step_seconds(of_workers: Sequence[Sequence[np.ndarray]]) -> list[float]:
    """Seconds of each case's step, of which every worker has timed some: those of the slowest worker, where nothing disturbs it."""
    return [float(np.quantile(np.max(seconds, axis=0), UNDISTURBED)) for seconds in zip(*of_workers, strict=True)]


def _time_rounds(
    config: Config, version: Version, smallest: TimedCase, cases: Sequence[TimedCase], strategy: StrategyChoice
) -> tuple[list[list[np.ndarray]], float, float]:
    """Seconds of steps of each case in each round, rows a second of the loader alone, and the most memory of this process in the smallest
    one."""
    time_round(config, version, [smallest], strategy)
    memory = peak_bytes(torch.device("cpu"))
    rounds = [time_round(config, version, cases, strategy) for _ in range(_ROUNDS)]
    return rounds, time_loader(case_config(config, cases[-1], strategy), version), memory


def case_config(config: Config, case: TimedCase, strategy: StrategyChoice) -> Config:
    """The config that takes such steps on one worker. A strategy whose passes do not depend on workers computes a shard in each."""
    values = config.train.model_dump(mode="json", exclude_unset=True, exclude={"init_from", "balance"})
    values |= {"strategy": strategy, "workers": 1, "global_batch": case.rows * case.passes, "shards": 1, "grad_accum_steps": case.passes}
    settings = Train.model_validate(values)
    if settings.strategy.rows_per_pass(settings):
        settings = Train.model_validate({**values, "shards": case.passes, "grad_accum_steps": 1})
    return config.model_copy(update={"train": settings})


def _time_steps(config: Config, version: Version) -> np.ndarray:
    """Seconds of steps, each from reading its rows on, float64 of shape (steps,); all processes begin each together."""
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, WorkerContext())
    loader = strategy.open_loader(config, version, task)
    pending = PendingSteps(torch.device("cpu"), strategy.gpu_steps_per_reading)
    seconds: list[float] = []
    steps = _WARM_UP
    with closing(loader), closing(strategy):
        batches = chain.from_iterable(strategy.batches(loader) for _ in repeat(None))
        while len(seconds) < steps:
            dist.barrier()
            started = time.perf_counter()
            result = strategy.step(next(batches), len(seconds), _RATE, Flags(), compute_grad_norm=False)
            pending.add(len(seconds) + 1, result, is_due=True)
            seconds.append(time.perf_counter() - started)
            if len(seconds) == _WARM_UP:
                steps += _steps_to_time(seconds[-1])
    return np.array(seconds[_WARM_UP:])


def _steps_to_time(step_seconds: float) -> int:
    """How many steps are timed, the same in all processes."""
    steps = torch.tensor(min(_MOST, max(_LEAST, int(_CASE_SECONDS / step_seconds))))
    dist.all_reduce(steps, dist.ReduceOp.MIN)
    return int(steps)


def time_loader(config: Config, version: Version) -> float:
    """Rows a second of the loader where nothing computes."""
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, WorkerContext())
    loader = strategy.open_loader(config, version, task)
    dist.barrier()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < _READING_SECONDS:
        for _ in strategy.batches(loader):
            steps += 1
            if time.perf_counter() - began > _READING_SECONDS:
                break
    loader.close()
    return steps * config.train.global_batch / (time.perf_counter() - began)
