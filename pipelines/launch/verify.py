"""The driver of a verification: trains a finished run again, possibly on other workers, and compares the two.

It writes to a folder of its own, which it removes, and nothing to MLflow: the verified run does not change.
"""

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from uuid import uuid4

from pipelines.config import Config, parse
from pipelines.config.messages.words import show_count
from pipelines.config.train.base import PLACEMENT, BalanceSettings
from pipelines.config.train.strategy import strategy_kinds_with
from pipelines.config.train.train import Train
from pipelines.data.versions.folds import open_fold
from pipelines.data.versions.versions import Version, check_is_not_erased
from pipelines.errors import TrainingError
from pipelines.launch.cluster import cluster, uses_gpus, warn_of_missing_cpus
from pipelines.launch.initial_weights import InitialWeights, initial_weights, write_initial_weights
from pipelines.launch.ray_trainer import create_trainer
from pipelines.launch.training_progress import TrainingProgress
from pipelines.launch.training_watch import watch
from pipelines.launch.worker import ReplayComparison, replay
from pipelines.runtime.weights import from_bytes, model_digest
from pipelines.tracking.history import TrainingRecord, read_training
from pipelines.tracking.params_and_tags import flatten
from pipelines.tracking.run_heartbeat import MODEL_DIGEST
from pipelines.tracking.training import run_folder
from pipelines.train.checkpoint.checkpoint_record import DigestLog, read_digest_log
from pipelines.train.checkpoint.run_directory import INITIAL, WEIGHTS, RunDirectory
from pipelines.train.strategy import strategy_class


@dataclass(frozen=True)
class Replay:
    """How a second training of a run compares with the first."""

    is_identical: bool
    text: str
    """What was compared, or where the two first differ."""
    comparison: ReplayComparison
    digest: str
    """Of the second training's model; empty if it did not run to its end."""


def verify(config: Config, run_id: str, steps: int | None = None) -> bool:
    """Train run `run_id` again, or its first `steps` steps. Print and return whether every loss, every saved tensor and the
    model are identical.

    Dataset version and config are the run's own; `config` only decides where it runs: workers, storage, paths, tracking.
    Raises TrackingError for an unknown run, TrainingError for one that cannot be verified, and DatasetError.
    """
    run = read_training(config.tracking.uri, run_id)
    recorded_config = replay_config(parse(run.config, f"run {run_id}", recorded=True))
    _check(run, recorded_config.train)
    progress = TrainingProgress()
    rerun_config = place_config(recorded_config, config, run_id, progress)
    version = _version(rerun_config, run, progress)
    before = RunDirectory(run_folder(rerun_config, run_id, run.tags))
    digest_log, filed = _load_digests(run, before, steps)
    filed_weights = before.get_with_checksum(INITIAL)
    initial = InitialWeights(filed_weights) if filed_weights else initial_weights(rerun_config, version)
    return train_again(rerun_config, version, run_id, initial, digest_log, filed, steps, progress).is_identical


def train_again(
    config: Config,
    version: Version,
    run_id: str,
    initial: InitialWeights | None,
    digest_log: DigestLog,
    recorded_digest: str,
    steps: int | None,
    progress: TrainingProgress,
) -> Replay:
    """Train the config's model on the version, and compare every step with `digest_log`, and the model with `recorded_digest`, if it is
    not empty. Says what it compared. The files that it writes are removed."""
    parent = config.train.storage.rstrip("/")
    name = f"{config.name}-verify-{uuid4().hex[:8]}"
    directory = RunDirectory(f"{parent}/{name}")
    with cluster(config.train):
        gpus = uses_gpus(config.train)
        warn_of_missing_cpus(config.train)
        scope = f"the first {show_count(steps, 'step')}" if steps else "all steps"
        progress.say(f"verifying {scope} of run {run_id}; workers: {config.train.workers}")
        try:
            write_initial_weights(initial, directory)
            trainer = create_trainer(replay, config, version, run_id, directory, gpus, digest_log=digest_log, steps=steps)
            answer = watch(trainer, directory, progress, lambda: None)
        finally:
            RunDirectory(parent).remove(name)
    is_identical, text = verdict(answer["comparison"], answer["digest"], recorded_digest)
    progress.say(text)
    if not is_identical and digest_log.machine not in ("", answer["machine"]):
        progress.say(f"the run was trained on {digest_log.machine}, this time on {answer['machine']}: exact is bitwise only on one of them")
    return Replay(is_identical, text, answer["comparison"], answer["digest"])


def verdict(comparison: ReplayComparison, digest: str, recorded_digest: str) -> tuple[bool, str]:
    """Whether two trainings are identical, and a text that says what was compared, or where they first differ.

    `digest` is empty if the second training did not run to its end, `recorded_digest` if neither MLflow nor the run's directory
    has it.
    """
    differences = []
    if comparison.loss:
        step, logged_loss, loss = comparison.loss
        differences.append(f"step {step} is the first whose loss differs, {loss!r} now and {logged_loss!r} in the run")
    if comparison.tensors:
        step, names = comparison.tensors
        before = max((saved for saved in comparison.saved if saved < step), default=0)
        differences.append(f"after step {step}, {len(names)} tensors differ, the first is {names[0]}; after step {before} none did")
    if differences:
        return False, f"differs: {'; '.join(differences)}"
    if digest and recorded_digest and digest != recorded_digest:
        return False, f"differs: the model is {digest}, but {recorded_digest} in the run, although no step differs"
    equal_parts = [f"the losses of {comparison.losses:,} steps"] if comparison.losses else []
    if comparison.saved:
        listed = ", ".join(map(str, comparison.saved[-5:]))
        ellipsis = "…, " if len(comparison.saved) > 5 else ""
        equal_parts.append(f"model and optimizer after {len(comparison.saved)} saved steps ({ellipsis}{listed})")
    equal_parts += [f"the model {digest}"] if digest and recorded_digest else []
    return True, f"identical: {', '.join(equal_parts)}"


def _load_digests(run: TrainingRecord, directory: RunDirectory, steps: int | None) -> tuple[DigestLog, str]:
    """The run's digest log and its model's digest. Raises TrainingError if they are not enough to verify the run, or its
    first `steps` steps."""
    digest_log, filed = read_digest_log(directory), run.tags.get(MODEL_DIGEST)
    if not filed:  # MLflow has lost it, but the directory may still have the model
        content = directory.get_with_checksum(WEIGHTS)
        filed = "" if content is None else model_digest(from_bytes(content))
    if not (digest_log.losses or filed):
        raise TrainingError(
            f"run {run.run_id} has neither losses in {directory.path} nor its model's digest in MLflow, "
            "so there is nothing to compare with; restore the folder"
        )
    if steps is not None and not any(step <= steps for step in digest_log.losses):
        raise TrainingError(
            f"{directory.path} has no losses of the first {steps} steps of run {run.run_id}; verify the whole run, without --steps"
        )
    return digest_log, filed


def replay_config(config: Config) -> Config:
    """Return the config that repeats a run: its strategy may have the weights of another one, which needs less."""
    train = config.train
    return config.model_copy(update={"train": train.model_copy(update={"strategy": train.strategy.replay_settings()})})


def _check(run: TrainingRecord, settings: Train) -> None:
    if run.status != "FINISHED":
        raise TrainingError(f"run {run.run_id} is {run.status}; only a FINISHED run can be verified: run its command again to resume it")
    check_is_reproducible(run.run_id, settings)


def check_is_reproducible(run_id: str, settings: Train) -> None:
    """Raise TrainingError for a run that trains to other weights on other workers; MismatchError if its strategy is not installed."""
    strategy_class(settings)  # raises here if there is no such strategy on this machine
    if not settings.strategy.reproducible:
        raise TrainingError(
            f"run {run_id} was trained with strategy {settings.strategy.kind}, whose weights depend on the number of workers; "
            f"verify a run of strategy {' or '.join(strategy_kinds_with('reproducible'))}"
        )


def place_config(recorded_config: Config, config: Config, run_id: str, progress: TrainingProgress) -> Config:
    """Return the run's config with the placement of `config`, and without retries: a verification cannot resume inside the run.

    Shards are dealt equally, since a replay check measures no speed. Raises ConfigError if the two do not fit, such as more workers than
    the run has replicas.
    """
    settings, recorded_settings = decisive_settings(replay_config(config)), decisive_settings(recorded_config)
    for key in sorted(settings.keys() | recorded_settings.keys()):
        if settings.get(key) != recorded_settings.get(key):
            progress.say(f"{key} was {recorded_settings.get(key)} in the run, which is used, and not {settings.get(key)}")
    placement: dict[str, Any] = {name: getattr(config.train, name) for name in PLACEMENT}
    if (origin := config.train.init_from).file or origin.folder:
        places = {"file": origin.file, "folder": origin.folder}
        placement["init_from"] = recorded_config.train.init_from.model_copy(update=places if recorded_config.train.init_from.digest else {})
    train = recorded_config.train.model_copy(update={**placement, "max_failures": 0, "balance": BalanceSettings(kind="equal")})
    dataset = recorded_config.dataset.model_copy(update={"path": config.dataset.path})
    rerun_config = recorded_config.model_copy(update={"train": train, "dataset": dataset, "tracking": config.tracking})
    return parse(rerun_config.model_dump(mode="json", by_alias=True), f"run {run_id}, verified with these settings of train", recorded=True)


def decisive_settings(config: Config) -> dict[str, Any]:
    """The settings that decide dataset and model, by dotted key; of weights in a file neither its place nor their digest, and nothing that
    a training notes of the runs that its task names."""
    excluded: Any = {**config.placement, "task": set(config.task.filled_in)}
    settings = config.model_dump(mode="json", include={"task", "train"}, exclude=excluded)
    if not config.train.init_from.run:
        settings["train"]["init_from"] = config.train.init_from.model_copy(update={"digest": ""}).identity
    return flatten({**config.data_identity, **settings})


def _version(config: Config, run: TrainingRecord, progress: TrainingProgress) -> Version:
    version = open_fold(config)
    recorded_digest = run.tags.get("dataset.digest")
    if recorded_digest is None:
        progress.say(f"MLflow no longer has the digest of the dataset that run {run.run_id} was trained on; {version.root} is used")
    elif version.digest != recorded_digest:
        check_is_not_erased(config.dataset.path, recorded_digest, run.run_id)
        raise TrainingError(
            f"run {run.run_id} was trained on dataset digest {recorded_digest[:12]}, version {run.tags.get('dataset.version', 'unknown')}; "
            f"{config.dataset.path} has {version.digest[:12]}, version {PurePath(version.root).name}; set dataset.path to the run's version"
        )
    return version
