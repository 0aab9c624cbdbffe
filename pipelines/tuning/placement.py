"""Has Ray Tune place the jobs of a search on the cluster at hand, as many at once as there is room for.

Each job is a trial of Ray Tune, whose process is the driver of a training, as Ray Train's v2 has it. A training on one worker runs in that
process itself, which the next job uses again: a group of workers takes seconds to start, and an epoch of a small table takes one.

Ray Tune decides nothing: its searcher hands on what `next_job` says, and a job's result is read from MLflow.
"""

import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp
from threading import Event, Thread
from types import FrameType
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher

from pipelines import config as configs
from pipelines.config import Config
from pipelines.config.train.train import Train
from pipelines.data.versions.versions import Version
from pipelines.launch.cluster import RayOutput
from pipelines.runtime.interrupts import FirstSignal, handle_signals
from pipelines.tuning.search import DONE, WAIT, NoJob
from pipelines.tuning.trial_memory import trial_bytes

log = logging.getLogger(__name__)

LEAVE_SECONDS = 120.0
"""Time for the trials under way to save after a signal."""
_POLL_SECONDS, _STOP_SECONDS = 0.2, 1.0
_QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_AUTO_INIT": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",  # all state is in MLflow
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}
"""Settings of Ray Tune, which prints tables and keeps logs of its own by default."""


@dataclass(frozen=True)
class TrialTask:
    """A training for a process of the cluster."""

    key: tuple[str, int]
    """By which its answer is known."""
    config: dict[str, Any]
    """As plain values, as a worker gets them."""
    version: Version = field(repr=False)
    """To be trained on."""
    epochs: int | None
    """The epoch to stop at; None to train to the end, test, and log the model."""
    birth_tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of the training's run, if it begins."""

    def __deepcopy__(self, memo: Any) -> "TrialTask":
        """Itself: Ray Tune copies what it is given, and the version's index may be large."""
        return self


@dataclass(frozen=True)
class Answer:
    """The outcome of a task: an error, if it has failed."""

    error: str = ""
    kind: str = ""
    """The error's class; empty for the death of a process."""
    result: Mapping[str, Any] = field(default_factory=dict)


NextTask = Callable[[], TrialTask | NoJob]
TakeAnswer = Callable[[tuple[str, int], Answer], None]


@dataclass(frozen=True)
class TrialPlaces:
    """The room that a cluster has for trials."""

    most: int
    """So many at once; 1 even if there is too little, since a cluster may grow."""
    resources: Mapping[str, float]
    """Of the process of a trial, as Ray names them."""


def trial_places(config: Config, version: Version, alternatives: Sequence[Config] = ()) -> TrialPlaces:
    """The room for trials of this search on the cluster at hand, and for the configs of `alternatives`. Memory is reserved too, so that no
    more begin than it holds."""
    settings, machines = config.train, [node["Resources"] for node in ray.nodes() if node["Alive"]]
    has_gpus = _has_gpus(settings)
    places = count_places(settings, machines, has_gpus, trial_bytes(config, version, has_gpus, alternatives))
    return replace(places, most=min(places.most, config.tune.parallel))


def count_places(settings: Train, machines: Sequence[Mapping[str, float]], has_gpus: bool, worker_bytes: int) -> TrialPlaces:
    """The room on machines with these resources for trials whose workers need so many bytes each. Pure.

    Where no machine has as much memory, all of the largest one is reserved, so that one trial at a time begins there."""
    largest = int(max((machine.get("memory", 0.0) for machine in machines), default=0.0))
    if worker_bytes > largest > 0:
        gib = f"{worker_bytes / 2**30:.1f} GiB, and no machine has more than {largest / 2**30:.1f} GiB"
        log.warning("a trial's worker is estimated to need %s for Ray's processes; one at a time begins on a machine", gib)
    worker_bytes = min(worker_bytes, largest)
    needs = {"CPU": settings.cpus_per_worker, **({"GPU": 1} if has_gpus else {}), **({"memory": worker_bytes} if worker_bytes else {})}
    workers = sum(int(min(machine.get(name, 0.0) // amount for name, amount in needs.items())) for machine in machines)
    most = max(1, workers // settings.max_workers)
    # A group of workers has its own resources; its driver gets a byte, since Ray Tune refuses none.
    return TrialPlaces(most, needs if trains_in_process(settings) else {"memory": 1})


def trains_in_process(settings: Train) -> bool:
    """Whether a training is on one worker, which can be the process of its trial."""
    return settings.max_workers == 1


def _has_gpus(settings: Train) -> bool:
    return settings.use_gpu is not False and ray.cluster_resources().get("GPU", 0) >= settings.min_workers


def run_tasks(
    config: Config,
    next_task: NextTask,
    take: TakeAnswer,
    places: TrialPlaces,
    ask_to_stop: Callable[[], None],
) -> None:
    """Run all tasks that `next_task` gives, at most so many at once as there are places, until it says DONE and their answers are taken.

    On a signal, no further task begins, `ask_to_stop` is called to have those under way save, and SystemExit is raised with 128 + the
    signal's number once they have; a second signal does not wait. Both functions are called in a thread, one at a time.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(places.most)  # a process is kept only for a job that is there already
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # answers say what has failed
    interrupt, errors = FirstSignal(), list[BaseException]()
    searcher = _Handover(next_task, take)

    def note(number: int, frame: FrameType | None) -> None:
        is_second = interrupt.number is not None
        if interrupt.take(number) and is_second:
            raise SystemExit(128 + number)

    thread = Thread(target=_fit, args=(config, searcher, places, errors), name="ray-tune", daemon=True)
    with handle_signals(note):
        thread.start()
        while thread.is_alive() and interrupt.number is None:
            thread.join(_POLL_SECONDS)
        if interrupt.number is not None:
            searcher.must_stop.set()
            deadline = time.monotonic() + LEAVE_SECONDS
            while thread.is_alive() and time.monotonic() < deadline:
                ask_to_stop()  # again and again, since a trial may only just begin
                thread.join(_STOP_SECONDS)
            raise SystemExit(128 + interrupt.number)
    if searcher.error:
        raise searcher.error
    if errors:
        raise errors[0]


class _Handover(Searcher):
    """Hands tasks to Ray Tune, and their answers on."""

    def __init__(self, next_task: NextTask, take: TakeAnswer) -> None:
        super().__init__()
        self._next_task, self._take = next_task, take
        self._keys: dict[str, tuple[str, int]] = {}
        self.must_stop = Event()
        self.error: BaseException | None = None
        """What a function of ours has raised, which Ray Tune would wrap."""

    def suggest(self, trial_id: str) -> Any:
        """The next task as Ray Tune's config; None if it is not known yet, and FINISHED after the last."""
        if self.must_stop.is_set() or self.error:
            return Searcher.FINISHED
        try:
            task = self._next_task()
        except BaseException as error:
            self.error = error
            return Searcher.FINISHED
        if task is DONE:
            return Searcher.FINISHED
        if task is WAIT:
            return None
        assert isinstance(task, TrialTask)
        self._keys[trial_id] = task.key
        return {"task": task}

    def take_answer(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Take the answer of a task; of a process that has died too often, that it has."""
        answer = (result or {}).get("answer")
        if not isinstance(answer, Answer):
            answer = Answer("its process died more often than train.max_failures allows")
        if self.error is None and not self.must_stop.is_set():  # else it has only saved
            try:
                self._take(self._keys[trial_id], answer)
            except BaseException as failure:
                self.error = failure

    on_trial_complete = take_answer

    def __reduce__(self) -> Any:
        """Ray Tune pickles a searcher to restore it later, which nobody needs here."""
        return Searcher, ()

    def save(self, checkpoint_path: str) -> None:
        """Nothing: all state is in MLflow."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, as above."""


def _fit(config: Config, searcher: _Handover, places: TrialPlaces, errors: list[BaseException]) -> None:
    """Run Ray Tune until the searcher has finished. Not in the main thread, which waits for signals."""
    folder = mkdtemp(prefix="lockstep-tune-")
    storage = config.train.storage if os.environ.get("RAY_ADDRESS") else folder
    try:
        parameters = tune.with_parameters(TaskTrainable, driver_host=socket.gethostname())
        limit = None if trains_in_process(config.train) else places.most  # whose drivers need no CPU
        trainable = tune.with_resources(parameters, dict(places.resources))
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(search_alg=searcher, num_samples=-1, max_concurrent_trials=limit, reuse_actors=True),
            run_config=tune.RunConfig(
                name=Path(folder).name,
                storage_path=storage,
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=config.train.max_failures),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        tuner.fit()
    except BaseException as error:
        errors.append(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class TaskTrainable(tune.Trainable):
    """A process for tasks, one after another: the driver of their trainings. A class, since Ray Train refuses to train in a function of Ray
    Tune's."""

    def setup(self, config: dict[str, Any], driver_host: str = "") -> None:
        logging.getLogger("ray.train").setLevel(logging.WARNING)  # it has a line for each training in a process of its own
        self._task: TrialTask = config["task"]
        self._driver_host = driver_host

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next task."""
        self._task = new_config["task"]
        return True

    def step(self) -> dict[str, Any]:
        return {"done": True, "answer": _train(self._task, self._driver_host)}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: a training saves itself."""


def _train(task: TrialTask, driver_host: str) -> Answer:
    """Train what a task says, and say what has become of it."""
    from pipelines.launch.training_run import TrialPlace, train, train_until  # noqa: PLC0415, in the process of the trial
    from pipelines.tracking import check_host  # noqa: PLC0415, as above

    config = configs.parse(task.config, task.config["name"], recorded=True)
    place = TrialPlace(trains_in_process(config.train), task.birth_tags)
    try:
        check_host(config.tracking.uri, driver_host)
        if task.epochs is not None:
            train_until(config, task.version, task.epochs, place)
            return Answer()
        result = train(config, task.version, ray_output=RayOutput(), trial=place)
    except SystemExit as interrupt:  # as after a signal to this process alone
        return Answer(f"its training was interrupted, with exit code {interrupt.code}; the same search goes on with it", "SystemExit")
    except Exception as error:  # a failed trial is a result, and Ray Tune would try it again
        return Answer(f"{error}", type(error).__name__)
    return Answer(result={"run_id": result.run_id, "model": result.model, "metrics": result.metrics})
