"""The driver: checks the settings, opens the MLflow run, trains on the workers, logs the model, ends the run with its real status."""

import json
import logging
import signal
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from io import StringIO
from typing import Any

from pipelines import tracking
from pipelines.config import Config
from pipelines.config.messages.words import show_count
from pipelines.config.train.base import Profile
from pipelines.data.versions.folds import open_fold, training_version
from pipelines.data.versions.versions import Version
from pipelines.errors import LockstepError, NonFiniteError, TrackingError, TrainingError
from pipelines.launch.checks import check_training
from pipelines.launch.cluster import RayOutput, cluster, job_tags, uses_gpus, warn_of_missing_cpus
from pipelines.launch.initial_weights import InitialWeights, fill_in_origins, has_initial_weights, initial_weights, write_initial_weights
from pipelines.launch.layout_plan import LayoutPlan
from pipelines.launch.training_progress import TrainingProgress, metric_fields, result_line, result_summary
from pipelines.launch.training_watch import forget_messages, train_in_groups
from pipelines.monitor.profile import PROFILE
from pipelines.monitor.worker_heartbeat import HUNG
from pipelines.report.filing import REPORT, file_report
from pipelines.report.run_data import INIT_FROM
from pipelines.runtime.notebook_html import html_summary, metrics_table
from pipelines.runtime.progress import Progress
from pipelines.runtime.weights import from_bytes, model_digest
from pipelines.serving import model as serve
from pipelines.tasks.metrics.table import missing_reasons, numbers_only
from pipelines.tracking.cross_validation_run import FOLD, file_metrics
from pipelines.tracking.parent_run import PARENT
from pipelines.train.checkpoint.checkpoint_record import newest_step
from pipelines.train.checkpoint.run_directory import WEIGHTS, RunDirectory
from pipelines.train.run_context import left_out_rows, total_steps
from pipelines.train.strategy import strategy_class

log = logging.getLogger(__name__)

_AWAY_SECONDS = 600.0
"""How long a finished training waits for a tracking server that does not answer."""


@dataclass(frozen=True)
class Result:
    run_id: str
    model: str
    """URI of the logged model."""
    model_digest: str
    metrics: dict[str, float]
    """Metrics of the best epoch, on the validation and the test split; without those that are not defined."""
    rows: int
    """Rows trained on, over all epochs."""
    seconds: float
    """Time in training steps."""

    def _repr_html_(self) -> str:
        lines = (f"model {self.model}", f"run {self.run_id}", f"{show_count(self.rows, 'row')} in {self.seconds:.1f} s of training")
        return html_summary("training", metrics_table(self.metrics), lines)


@dataclass(frozen=True)
class TrialPlace:
    """Where a trial of a search is trained."""

    is_local: bool = False
    """Whether this process is the only worker."""
    birth_tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of a run that begins; one that an earlier command began keeps its own."""


@dataclass(frozen=True)
class PausedTraining:
    """A training that stopped before its end, and can go on."""

    run_id: str
    epochs: int
    """Epochs that are trained, validated and saved."""
    is_trained: bool
    """Whether no epoch is left to train, if only by early stopping."""


def train(
    config: Config,
    version: Version | None = None,
    parent_run_id: str = "",
    ray_output: RayOutput | None = None,
    trial: TrialPlace | None = None,
    plan: LayoutPlan | None = None,
) -> Result:
    """Train the config's model on a dataset version, by default the one that was made from this config, and log it in MLflow, inside the
    run `parent_run_id` if there is one. `ray_output` is that of a Ray cluster which the caller has joined. A `trial` of a search is trained
    in its place, and prints nothing. With a `plan`, whose chosen layout the config has, steps are compared with what it expects.

    Resumes an interrupted run of the same model and dataset. When a signal interrupts it, the run becomes KILLED, can be
    resumed, and SystemExit is raised with 128 + the signal's number. Also raises DatasetError, TrainingError, TrackingError.
    """
    version = training_version(config, version) if version else open_fold(config)
    config = fill_in_origins(config, version)
    check_training(config, version)
    initial = None if has_initial_weights(config, version) else initial_weights(config, version)
    progress, place = TrainingProgress(Progress(StringIO()) if trial else None), trial or TrialPlace()
    with nullcontext(ray_output) if ray_output else cluster(config.train) as output:
        gpus = uses_gpus(config.train)
        warn_of_missing_cpus(config.train)
        tags = {**job_tags(), "rows.left_out_of_an_epoch": str(left_out_rows(config, version.rows("train")))}
        tags["workers"] = " to ".join(map(str, sorted(set(config.train.workers_range))))
        # By these, a cross-validation finds the training of a fold.
        tags |= {FOLD: str(config.train.fold)} if config.train.fold is not None else {}
        tags |= {PARENT: parent_run_id} if parent_run_id else {}
        is_part = bool(parent_run_id) or trial is not None
        with tracking.tracked_run(lambda: tracking.open_training(config, version, tags, place.birth_tags), ends_job=not is_part) as run:
            progress.say(_describe_start(config, version, run, gpus))
            directory = _prepare_directory(initial, run, progress)
            try:
                with strategy_class(config.train).actors(config.train) as actors:
                    arguments = {"gpus": gpus, "actors": actors, "is_local": place.is_local}
                    trained = train_in_groups(config, version, run, directory, progress, plan=plan, **arguments)
            except TrainingError:
                _file_diagnostics(run, directory, config.train.profile, progress)
                raise
            finally:
                _keep_output(output, directory, progress)
            if not trained["finished"]:  # a trial, which the driver of its search has asked to stop
                raise SystemExit(128 + signal.SIGTERM)
            _file_diagnostics(run, directory, config.train.profile, progress)
            result = _log_model(config, version, run, directory, trained)
    fields = {"run_id": result.run_id, "model": result.model, "model_digest": result.model_digest, **metric_fields(trained["metrics"])}
    lines = result_summary(run.run_id, config.experiment, config.tracking.uri, trained, result.model)
    progress.say(lines, "training" if is_part else "result", **fields, rows=result.rows, seconds=result.seconds)
    return result


def train_until(config: Config, version: Version, epoch: int, trial: TrialPlace) -> PausedTraining:
    """Train the config's model until that epoch, or to its end without a test, and save it, inside a run of MLflow: the one of the same
    model and dataset if it is not finished, else a new one.

    The settings are those of the whole training, and so are its schedules: `train` goes on from the checkpoint. The run is SCHEDULED
    meanwhile, and KILLED if the training was interrupted before that epoch. The process must be in a Ray. Raises what `train` does, except
    for an interrupt.
    """
    version = training_version(config, version)
    check_training(config, version)
    config = fill_in_origins(config, version)
    initial = None if has_initial_weights(config, version) else initial_weights(config, version)
    progress = TrainingProgress(Progress(StringIO()))
    status: tracking.Status = "SCHEDULED"

    def begin() -> tracking.TrainingRun:
        return tracking.open_training(config, version, job_tags(), trial.birth_tags)

    with tracking.tracked_run(begin, ends_job=False, final_status=lambda: status) as run:
        directory = _prepare_directory(initial, run, progress)
        arguments: dict[str, Any] = {"pause_epoch": epoch, "is_local": trial.is_local, "gpus": uses_gpus(config.train)}
        try:
            with strategy_class(config.train).actors(config.train) as actors:
                trained = train_in_groups(config, version, run, directory, progress, actors=actors, **arguments)
        except NonFiniteError as error:
            run.tag({tracking.NON_FINITE: str(error)})
            raise
        run.send(trained["unsent"])
        if trained["epochs"] < epoch and not trained["is_trained"]:
            status = "KILLED"
        run.tag({tracking.IS_TRAINED: "true"} if trained["is_trained"] else {})
    return PausedTraining(run.run_id, trained["epochs"], trained["is_trained"])


def find_result(config: Config) -> Result | None:
    """The result of the newest training of this config on its dataset version, if that is finished, and has its model."""
    version = open_fold(config)
    config = fill_in_origins(config, version)
    finished = tracking.find_finished_training(config, version)
    if finished is None:
        return None
    run_id, content = finished
    try:
        result = Result(**json.loads(content))
    except (TypeError, ValueError):  # of another version, or edited
        return None
    log.warning("run %s has trained this model on these rows: it is taken; `train` without --once, or api.train, trains it again", run_id)
    return result


def _file_diagnostics(run: tracking.TrainingRun, directory: RunDirectory, settings: Profile, progress: TrainingProgress) -> None:
    """File the workers' profiles, and what hung workers waited for, in MLflow. A failure is logged, and the files stay in the directory."""
    try:
        names_by_folder = {folder: directory.names(folder) for folder in (PROFILE, HUNG)}
        for folder, names in names_by_folder.items():
            for name in names:
                if (content := directory.get(f"{folder}/{name}")) is not None:
                    run.file(f"{folder}/{name}", content)
    except LockstepError as error:
        log.warning("%s/%s and /%s are not filed in the run: %s", directory.uri, PROFILE, HUNG, error)
        return
    for line in _profile_lines(settings, names_by_folder[PROFILE]):
        progress.say(line)
    if names_by_folder[HUNG]:
        progress.say(f"what hung workers waited for is filed under {HUNG}/")


def _profile_lines(settings: Profile, names: list[str]) -> list[str]:
    if settings.steps is None:
        return []
    missing = [rank for rank in dict.fromkeys(settings.ranks) if f"rank-{rank}.trace.json.gz" not in names]
    steps = "steps {:,} to {:,}".format(*settings.steps)
    lines = [f"the profile of {steps} is filed under {PROFILE}/; https://ui.perfetto.dev opens its traces"] if names else []
    if missing:
        workers = ", ".join(map(str, missing))
        lines.append(f"train.profile: there is no profile of worker {workers}, which did not exist or did not come to {steps}")
    return lines


def _keep_output(output: RayOutput, directory: RunDirectory, progress: TrainingProgress) -> None:
    """Write what Ray printed into the directory. A failure is logged: it must not hide why the training ends."""
    try:
        if line := output.write(directory):
            progress.say(line)
    except TrainingError as error:
        log.warning("what Ray printed is lost: %s", error)


def _describe_start(config: Config, version: Version, run: tracking.TrainingRun, gpus: bool) -> str:
    settings, rows = config.train, version.rows("train")
    beginning = "starts"
    if run.is_resumed:
        step = newest_step(RunDirectory(run.folder))
        beginning = "begins again, since no checkpoint was saved" if step is None else f"resumes after step {step:,}"
    left_out, adjective = left_out_rows(config, rows), "different" if settings.shuffle else "the same"
    least, most = settings.workers_range
    return (
        f"run {run.run_id} {beginning}: {rows:,} rows of {version.root}, "
        f"{total_steps(config, rows):,} {settings.strategy.describe_steps(settings)} in at most {show_count(settings.epochs, 'epoch')}"
        f"{f' ({left_out} rows left out of each, {adjective} ones every time)' if left_out else ''}, "
        f"on {show_count(most if least == most else f'{least} to {most}', 'worker')} with {'a GPU each' if gpus else 'CPUs'}"
    )


def _prepare_directory(initial: InitialWeights | None, run: tracking.TrainingRun, progress: TrainingProgress) -> RunDirectory:
    """The run's directory, without the messages of an earlier command, and with the initial weights. Says which of them fit."""
    directory = RunDirectory(run.folder)
    forget_messages(directory)
    if initial and initial.fit:
        progress.say(initial.fit.describe(), "init_from", **initial.fit.to_values())
        run.file(INIT_FROM, json.dumps(initial.fit.to_values(), indent=1).encode())
    write_initial_weights(initial, directory)
    return directory


def _log_model(config: Config, version: Version, run: tracking.TrainingRun, directory: RunDirectory, trained: Mapping[str, Any]) -> Result:
    if not tracking.is_reachable(config.tracking.uri, _AWAY_SECONDS):
        raise TrackingError(
            f"the model is trained and saved in {directory.path}, but {config.tracking.uri} has not answered for "
            f"{_AWAY_SECONDS / 60:.0f} minutes; run the same command to log it"
        )
    metrics, steps = numbers_only(trained["metrics"]), trained["steps"]
    run.send([*trained["unsent"], tracking.final_point(steps, trained["best_epoch"], metrics)])
    content = directory.get_with_checksum(WEIGHTS)
    assert content is not None, "rank 0 writes the weights before it returns"
    weights = from_bytes(content)
    digest = model_digest(weights)
    model = serve.log_model(config, version.manifest, weights, run.run_id, tracking.final_step(steps), trained["decision"])
    if config.train.fold is not None:
        file_metrics(run, metrics)  # before the tag by which a run counts as finished
    reasons = missing_reasons(trained["metrics"])
    remarks = {tracking.UNDEFINED: json.dumps(reasons) if reasons else "", tracking.REMARKS: "\n".join(trained["remarks"])}
    run.tag({tracking.MODEL_DIGEST: digest, **{name: text for name, text in remarks.items() if text}})
    file_report(run, version)
    run.describe(tracking.describe_training(config, version.manifest, result_line(trained["metrics"]), trained, run.artifact_page(REPORT)))
    result = Result(run.run_id, model, digest, metrics, trained["rows"], trained["seconds"])
    run.file(tracking.RESULT, json.dumps(asdict(result)).encode())
    return result
