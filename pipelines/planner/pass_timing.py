"""Times a few steps of a config's model on this machine, in as many processes as there will be workers, each with rows of its own."""

import time
from dataclasses import dataclass
from statistics import median

import torch.distributed as dist

from pipelines.config import Config
from pipelines.config.train.strategy import StrategySettings
from pipelines.config.train.train import Train
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError
from pipelines.planner.processes import call_in_processes
from pipelines.planning.measured import MeasuredPasses, fit_passes
from pipelines.tasks.bind import build_task
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

_WARM_UP, _LEAST, _MOST = 3, 6, 200
"""Steps before those that are timed, and how many of these."""
_CASE_SECONDS = 2.0
"""After which no further step of a case is timed, and reading ends."""
Strategy = StrategySettings | str
_RATE = 1e-6
"""Learning rate: weights stay about what they are."""


@dataclass(frozen=True)
class TimedCase:
    """A step on one worker: so many passes of so many rows."""

    rows: int
    passes: int


def time_passes(config: Config, version: Version, workers: int, strategy: Strategy) -> MeasuredPasses:
    """Time passes of the config's model on `version`, of the rows that a step has for each of `workers`, and of an eighth of them.

    Each worker is a process that takes all steps alone, while the others do the same: so they compete for cores and memory, and wait for
    nobody. Raises ConfigError if the training split has too few rows for a step."""
    most = max(2, config.train.global_batch // workers)
    rows = (max(1, most // 8), most)
    if version.rows("train") < 2 * most:
        raise ConfigError(
            f"a step of two passes of {most} rows cannot be timed with the {version.rows('train')} rows of split train; lower "
            "train.global_batch, or plan without measuring"
        )
    cases = (TimedCase(rows[0], 1), TimedCase(rows[0], 2), TimedCase(rows[1], 1), TimedCase(rows[1], 2))
    answers = call_in_processes(workers, _time_cases, config, version, cases, strategy, threads=config.train.cpus_per_worker)
    few, few_twice, many, many_twice = (max(seconds) for seconds in zip(*(answer[0] for answer in answers), strict=True))
    passes = max(0.0, few_twice - few), max(0.0, many_twice - many)
    return fit_passes(rows, passes, few - passes[0], min(answer[1] for answer in answers))


def _time_cases(config: Config, version: Version, cases: tuple[TimedCase, ...], strategy: Strategy) -> tuple[list[float], float]:
    """Median seconds of a step of each case, and rows a second of the loader alone."""
    seconds = [_time_steps(_case_config(config, case, strategy), version) for case in cases]
    return seconds, _time_loader(_case_config(config, cases[-1], strategy), version)


def _case_config(config: Config, case: TimedCase, strategy: Strategy) -> Config:
    """The config that takes such steps on one worker. A strategy whose sums do not depend on workers computes a shard in each pass."""
    values = config.train.model_dump(mode="json", exclude_unset=True, exclude={"init_from", "balance"})
    values |= {"strategy": strategy, "workers": 1, "global_batch": case.rows * case.passes, "shards": 1, "grad_accum_steps": case.passes}
    settings = Train.model_validate(values)
    if settings.strategy.reproducible:
        settings = Train.model_validate({**values, "shards": case.passes, "grad_accum_steps": 1})
    return config.model_copy(update={"train": settings})


def _time_steps(config: Config, version: Version) -> float:
    """Median seconds of a step, without waiting for rows."""
    strategy = create_strategy(config.train, build_task(config.task, version.manifest), WorkerContext())
    loader = strategy.open_loader(config, version, build_task(config.task, version.manifest))
    seconds: list[float] = []
    number = 0
    dist.barrier()
    began = time.perf_counter()
    while len(seconds) < _WARM_UP + _MOST and (len(seconds) < _WARM_UP + _LEAST or time.perf_counter() - began < _CASE_SECONDS):
        for batch in strategy.batches(loader):
            started = time.perf_counter()
            strategy.step(batch, number, _RATE, Flags(), compute_grad_norm=False)
            seconds.append(time.perf_counter() - started)
            number += 1
            if len(seconds) >= _WARM_UP + _LEAST and time.perf_counter() - began > _CASE_SECONDS:
                break
    strategy.close()
    loader.close()
    return median(seconds[_WARM_UP:])


def _time_loader(config: Config, version: Version) -> float:
    """Rows a second of the loader where nothing computes."""
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, WorkerContext())
    loader = strategy.open_loader(config, version, task)
    dist.barrier()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < _CASE_SECONDS:
        for _ in strategy.batches(loader):
            steps += 1
            if time.perf_counter() - began > _CASE_SECONDS:
                break
    loader.close()
    return steps * config.train.global_batch / (time.perf_counter() - began)
