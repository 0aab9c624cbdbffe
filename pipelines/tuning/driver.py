"""The driver of a search: decides jobs, has them placed, reads what they reached from MLflow, and trains the winner to the end.

It keeps nothing: after a kill, the same command decides the same jobs again, and finds the results of those that are done in MLflow, by the
identity of their trainings. So it goes on where it was, and so does a search with more trials.
"""

import logging
import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from pipelines import tracking
from pipelines.config import Config
from pipelines.config.load import parse
from pipelines.config.train.base import PLACEMENT
from pipelines.config.tuning import Scheduler, budget_seconds
from pipelines.data.versions.folds import open_splits, training_version
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError, LockstepError, TrackingError
from pipelines.launch.checks import check_training
from pipelines.launch.cluster import RayOutput, cluster, job_tags
from pipelines.launch.initial_weights import fill_in_origins
from pipelines.runtime.progress import Progress, is_json
from pipelines.tasks.bind import build_task
from pipelines.tracking.parent_run import PARENT
from pipelines.tracking.search_files import TrialResult
from pipelines.tracking.search_run import TRIAL, EpochCurve, SearchRun, open_search, read_curve
from pipelines.train.checkpoint.run_directory import STOP, RunDirectory
from pipelines.tuning.alternatives import AlternativeModel, read_alternatives
from pipelines.tuning.combination import best_trials, check_combination
from pipelines.tuning.final_trainings import FINAL, FinalTrainings
from pipelines.tuning.forks import fork_training
from pipelines.tuning.placement import Answer, TrialTask, run_tasks, trains_in_process, trial_places
from pipelines.tuning.population import comparison_epochs, create_population, population_size
from pipelines.tuning.proposals import proposer
from pipelines.tuning.result_files import log_result, winner_remarks
from pipelines.tuning.search import (
    DONE,
    WAIT,
    NoJob,
    Params,
    SearchPlan,
    TrialJob,
    TrialScore,
    best_trial,
    job_after_budget,
    next_job,
    rung_epochs,
    total_epochs,
)
from pipelines.tuning.search_result import SearchResult, best_value, describe_search
from pipelines.tuning.space import check_search, config_params, config_values, parse_trial
from pipelines.tuning.trial_versions import TrialVersions
from pipelines.tuning.winner_file import NewSettings, find_changes, winner_path, write_winner

log = logging.getLogger(__name__)

JOB = "job"
"""Kind of the tasks of trials, in their keys."""


def run_search(config: Config, origin: str = "", output: str = "", ray_output: RayOutput | None = None) -> SearchResult:
    """Search the settings of `tune.space`, and train the winner to the end, and with fresh seeds. The winner's config is written to
    `output`, by default beside `origin`, the file of this one; without either, nowhere.

    A trial is an ordinary training, which any search, or a command by hand, may have begun: only what is not in MLflow is trained. When
    a signal interrupts it, trials under way save, the run becomes KILLED, and SystemExit is raised with 128 + the signal's number; the same
    call goes on. Raises ConfigError before anything starts, what `train` does, and LockstepError with the first error if all trials fail.
    """
    check_search(config, origin)
    check_combination(config)
    path = winner_path(origin, output) if origin else None
    changed = find_changes(origin, config) if origin else {}
    config = place_trials(config)
    version = open_splits(config)
    check_training(config, training_version(config, version))
    metric, direction = choose_metric(config, version)
    alternatives = read_alternatives(config, version, metric)
    progress = Progress()
    with nullcontext(ray_output) if ray_output else cluster(_cluster_settings(config)):
        with (
            tracking.tracked_run(lambda: open_search(config, version, job_tags())) as run,
            TrialVersions(config, version) as versions,
        ):
            places = trial_places(config, version, [alternative.config for alternative in alternatives])
            word = "resumes" if run.is_resumed else "starts"
            progress.say(
                f"run {run.run_id} {word}: {config.tune.trials} trials, {places.most} at a time, by {direction} of validation {metric}"
            )
            run.wait_for_trials()
            search = SearchState(config, alternatives, versions, run, metric, _plan(config, direction), progress)
            run_tasks(config, search.next_task, search.take, places, lambda: _ask_to_stop(run, config))
            result = search.result(str(path or ""))
            if path is not None:
                write_winner(origin, path, search.winner_settings(result, changed), winner_remarks(result))
            run.end_trials({trial.run_id for trial in result.trials if trial.error})
            log_result(run, result, config.tune.space)
    lines = describe_search(result)
    lines += [f"written   {path}"] if path else []
    lines += [f"combined  {result.combined.model}"] if result.combined else []
    lines.append(f"run {run.run_id} of experiment {config.experiment} in {config.tracking.uri}\nmodel {result.model}")
    progress.say("\n".join(lines), "result", **result.values(), params=result.best_params, score=result.best_score)
    return result


def place_trials(config: Config) -> Config:
    """The config whose trainings have as many workers as `tune.workers` gives each trial. Raises ConfigError if its strategy cannot."""
    if config.tune.workers is None:
        return config
    values = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    values["train"] = {**values.get("train", {}), "workers": config.tune.workers}
    try:
        return parse(values, config.name, recorded=True)  # a setting that has no effect on so many workers does no harm
    except ConfigError as error:
        raise ConfigError(f"tune.workers is {config.tune.workers}, and {error}; remove it for train.workers, or give another") from error


def choose_metric(config: Config, version: Version) -> tuple[str, Any]:
    """The metric that compares trials, and whether `min` or `max` is better. Raises ConfigError if the task does not have it, or if there
    are no rows to validate."""
    task, name = build_task(config.task, version.manifest), config.tune.metric
    if not version.rows("validation"):
        raise ConfigError(f"split validation of {version.root} has no rows, by which trials are compared; give dataset.split one")
    try:
        return task.choose_monitor(name or config.train.monitor)
    except ConfigError as error:
        raise ConfigError(str(error).replace("train.monitor is", "tune.metric is", 1)) from error


class SearchState:
    """The state of a search in this process, all of which follows from its plan and from MLflow."""

    def __init__(
        self,
        config: Config,
        alternatives: Sequence[AlternativeModel],
        versions: TrialVersions,
        run: SearchRun,
        metric: str,
        plan: SearchPlan,
        progress: Progress,
    ) -> None:
        self.config, self.alternatives, self.versions, self.run, self.metric, self.plan = config, alternatives, versions, run, metric, plan
        self._progress, self._propose = progress, proposer(config.tune, plan)
        self._values = config_values(_replace_monitor(config, versions.get(config), metric))
        self._deadline = time.monotonic() + (budget_seconds(config.tune.budget) or float("inf"))
        self.jobs: list[TrialJob] = []
        self._without_version: list[int] = []
        """Jobs, by number, whose dataset version ETL makes."""
        self._repeated: list[int] = []
        """Jobs, by number, with the parameters of an earlier one that has no result yet: both are one training."""
        self._scores: dict[int, TrialScore] = {}
        self._curves: dict[int, EpochCurve] = {}
        self._errors: dict[int, str] = {}
        self._epochs_before: dict[int, int] = {}
        """By trial, its epochs in MLflow when this command first asked."""
        self._final: FinalTrainings | None = None

    def next_task(self) -> TrialTask | NoJob:
        """The next training: the jobs of the search, and once all are done, its winner. Raises LockstepError if all have failed."""
        if self._final is None:
            task = self._next_job_task()
            if task is not DONE or len(self._scores) < len(self.jobs):
                return WAIT if task is DONE else task
            trials = [(trial, self.trial_config(trial.params)) for trial in self._last_trials()]
            monitor = self.metric, self.plan.direction
            self._final = FinalTrainings(trials, self.alternatives, self.versions, self.config.tune, monitor, self.run.run_id)
        return self._final.next_task()

    def take(self, key: tuple[str, int], answer: Answer) -> None:
        """Take the answer of a task. Raises TrackingError if MLflow cannot be used, and LockstepError if a training was interrupted, or the
        winner cannot be trained."""
        kind, number = key
        if self._final is not None and kind == FINAL:
            self._final.take(number, answer)
        else:
            self._take_job(number, answer)

    def _next_job_task(self) -> TrialTask | NoJob:
        """The next job that must be trained; those whose result is in MLflow are passed. Those come later whose dataset version is being
        made, or whose training is under way."""
        while True:
            for later in (self._repeated, [] if self.versions.is_making else self._without_version):
                for number in list(later):
                    later.remove(number)
                    if task := self._task(number, self.jobs[number]):
                        return task
            if self.jobs and time.monotonic() > self._deadline:
                job = job_after_budget(self.plan, self.jobs, self._scores)
            else:
                job = next_job(self.plan, self._propose, self.jobs, self._scores)
            if isinstance(job, NoJob):
                return job
            self.jobs.append(job)
            if task := self._task(len(self.jobs) - 1, job):
                return task

    def _task(self, number: int, job: TrialJob) -> TrialTask | None:
        """The task of a job; None if its result is there already, if it can have none, or if it comes later."""
        if any(index not in self._scores and earlier.params == job.params for index, earlier in enumerate(self.jobs[:number])):
            self._repeated.append(number)
            return None
        try:
            config = parse_trial(self._values, job.params)
            version = self.versions.find(config)
            if version is None:
                self._without_version.append(number)
                return None
            config = fill_in_origins(config, version)
            curve = read_curve(config, version, self.metric)
        except ConfigError as error:
            self._fail(number, str(error))
            return None
        if job.fork is not None and not (curve and curve.is_decided(job.epochs)):
            fork_training(config, version, job, self._curves[job.fork.trial].run_id, self.run.run_id)
            curve = read_curve(config, version, self.metric)
        if curve:
            self._curves[job.trial] = curve
        self._epochs_before.setdefault(job.trial, len(curve.values) if curve else 0)
        if self._note_result(number, job, curve):
            return None
        tags = {PARENT: self.run.run_id, TRIAL: str(job.trial)}
        return TrialTask((JOB, number), config.model_dump(mode="json", by_alias=True), version, job.epochs, tags)

    def _take_job(self, number: int, answer: Answer) -> None:
        """Take the answer of a job's task: what it reached is read from MLflow. Where MLflow was away, or the training was interrupted, the
        search ends with that: as the worst of trials, it would change what comes after it."""
        job = self.jobs[number]
        if answer.kind == "TrackingError":
            raise TrackingError(answer.error)
        if answer.kind == "SystemExit":
            raise LockstepError(f"trial {job.trial}: {answer.error}")
        config = self.trial_config(job.params)
        curve = read_curve(config, self.versions.get(config), self.metric)
        if curve:
            self._curves[job.trial] = curve
        if not self._note_result(number, job, curve):
            self._fail(number, answer.error or f"its training was stopped before epoch {job.epochs}; run the same command again")

    def trial_config(self, params: Params) -> Config:
        """The config of a trial whose dataset version is there. Raises ConfigError for values that do not go together."""
        config = parse_trial(self._values, params)
        return fill_in_origins(config, self.versions.get(config))

    def winner_settings(self, result: SearchResult, changed: Params) -> NewSettings:
        """The settings of the best model that take the place of the file's: sections that were `changed` before the search, parameters of a
        trial or sections of an alternative, and the metric that selects the best epoch."""
        if result.chosen:
            alternative = self.alternatives[result.chosen - 1]
            return NewSettings({**changed, "task": alternative.task, "train": alternative.train}, alternative.placement_names)
        monitor = self._values["train"].get("monitor", "")
        monitored = {} if monitor == self.config.train.monitor else {"train.monitor": monitor}
        return NewSettings({**changed, **result.best.params, **monitored}, PLACEMENT)

    def _note_result(self, number: int, job: TrialJob, curve: EpochCurve | None) -> bool:
        """Note what a job has reached. Returns whether it has reached its epoch, or can never."""
        if curve is None:
            return False
        if len(curve.values) >= job.epochs or curve.is_trained:
            values = curve.values[: job.epochs]
            self._scores[number] = TrialScore(best_value(values, self.plan.direction), values[-1] if values else None)
            if curve.parent == self.run.run_id:
                self.run.tag_trial(curve.run_id, job.rung)
            self._tell(job, self._scores[number].value)
            return True
        if curve.error:
            self._fail(number, curve.error)
        return bool(curve.error)

    def _fail(self, number: int, error: str) -> None:
        job = self.jobs[number]
        self._scores[number], self._errors[job.trial] = TrialScore(None), error
        log.warning("trial %d has failed, and counts as the worst: %s", job.trial, error.partition("\n")[0])
        self._tell(job, None)

    def _tell(self, job: TrialJob, value: float | None) -> None:
        begun = max(earlier.trial for earlier in self.jobs)
        best = best_trial(self.plan, self.jobs, self._scores) if len(self._scores) == len(self.jobs) else None
        epochs, of_trials = total_epochs(self.jobs), f"of {self.plan.trials} trials" if self.plan.population is None else "trials"
        line = f"{begun} {of_trials}, {epochs} epochs"
        line += f", best {self.metric} {best.values[-1]:.4g} of trial {best.number}" if best else ""
        if is_json():
            fields = {"trial": job.trial, "epochs": job.epochs, "rung": job.rung, "score": value, "params": job.params}
            fields |= {"source": job.fork.trial, "source_epoch": job.fork.epoch} if job.fork else {}
            self._progress.say(line, "trial", **fields)
        else:
            is_counted = self.plan.population is None  # else trials stop and begin until all epochs are done
            self._progress.show(*((begun, self.plan.trials) if is_counted else (epochs, self.plan.trials * self.plan.rungs[-1])), line)

    def winner(self) -> TrialResult:
        """The best trial. Raises LockstepError with the first error if all have failed."""
        best = best_trial(self.plan, self.jobs, self._scores)
        if best is None:
            first = next(iter(self._errors.values()), f"{self.metric} is not defined in any epoch")
            raise LockstepError(f"all {len({job.trial for job in self.jobs})} trials of the search have failed; the first: {first}")
        return self._trial_result(best.number)

    def _last_trials(self) -> list[TrialResult]:
        """The trials whose models are logged: the winner, and those on its dataset version that are combined with it: a model has one."""
        winner, count = self.winner(), max(0, self.config.tune.combine - 1)
        trials = [self._trial_result(number) for number in sorted({job.trial for job in self.jobs})]
        digest = self._dataset_digest(winner)
        others = [trial for trial in trials if trial.run_id != winner.run_id and not trial.error and self._dataset_digest(trial) == digest]
        return [winner, *best_trials(others, len(self.plan.rungs) - 1, self.plan.direction, count)]

    def _dataset_digest(self, trial: TrialResult) -> str:
        return self.versions.get(parse_trial(self._values, trial.params)).digest

    def result(self, output: str) -> SearchResult:
        """The result of the search, once all answers are taken."""
        assert self._final is not None, "the winner was trained last"
        trials = tuple(self._trial_result(number) for number in sorted({job.trial for job in self.jobs}))
        trained = sum(max(0, trial.epochs - self._epochs_before.get(trial.number, 0)) for trial in trials)
        return SearchResult(
            run_id=self.run.run_id,
            metric=self.metric,
            direction=self.plan.direction,
            rungs=self.plan.rungs,
            trials=trials,
            jobs=tuple(self.jobs),
            winner=self._final.winner.number,
            epochs=total_epochs(self.jobs),
            epochs_trained=trained,
            full_grid=(len(trials) if self.plan.population is None else self.plan.trials) * self.plan.rungs[-1],
            model=self._final.model,
            output=output,
            fresh=self._final.fresh(),
            begins_with_config=self.plan.first is not None,
            combined=self._final.combination(),
            alternatives=self._final.alternatives(),
            chosen=self._final.chosen,
        )

    def _trial_result(self, number: int) -> TrialResult:
        job, curve = next(job for job in reversed(self.jobs) if job.trial == number), self._curves.get(number)
        values = curve.values[: job.epochs] if curve else ()
        error = self._errors.get(number, "")
        score = None if error else best_value(values, self.plan.direction)
        is_linked = curve is not None and curve.parent != self.run.run_id
        source, source_epoch = (job.fork.trial, job.fork.epoch) if job.fork else (0, 0)
        run_id = curve.run_id if curve else ""
        return TrialResult(number, job.params, run_id, job.rung, len(values), values, score, is_linked, error, source, source_epoch)


def _plan(config: Config, direction: Any) -> SearchPlan:
    settings, scheduler = config.tune, config.tune.scheduler
    return SearchPlan(
        trials=population_size(settings) if scheduler.kind == "pbt" else settings.trials,
        rungs=_plan_rungs(config.train.epochs, scheduler),
        reduction=scheduler.reduction,
        parallel=settings.parallel,
        direction=direction,
        budget_epochs=settings.budget if isinstance(settings.budget, int) else None,
        first=config_params(config),
        population=create_population(config) if scheduler.kind == "pbt" else None,
    )


def _plan_rungs(epochs: int, scheduler: Scheduler) -> tuple[int, ...]:
    """The epochs after which trials are compared, and those of the whole training last."""
    if scheduler.kind == "pbt":
        return comparison_epochs(epochs, scheduler.interval_epochs)
    return rung_epochs(epochs, scheduler.min_epochs, scheduler.reduction) if scheduler.kind == "asha" else (epochs,)


def _replace_monitor(config: Config, version: Version, metric: str) -> Config:
    """The config whose best epochs are those by the metric; as it is, where they are anyway."""
    usual, _ = build_task(config.task, version.manifest).choose_monitor(config.train.monitor)
    return config if usual == metric else config.model_copy(update={"train": config.train.model_copy(update={"monitor": metric})})


def _cluster_settings(config: Config) -> Any:
    """Settings of `train` by which a Ray of our own has processes that wait: one for each trial."""
    if not trains_in_process(config.train):
        return config.train
    waiting = max(1, min(config.tune.parallel, (os.cpu_count() or 1) // config.train.cpus_per_worker))
    return config.train.model_copy(update={"workers": waiting})


def _ask_to_stop(run: SearchRun, config: Config) -> None:
    for folder in run.live_folders(config):
        RunDirectory(folder).put(STOP, b"", durable=False)
