"""Verifies a statement with nothing but the sources, the code and the statement itself: checks every digest, makes the dataset again if it
is not there, trains again, and signs beside the signer if all is the same.

A statement's config is run, as any config is: its SQL, and the modules that it names. So nothing is run before the signature is checked,
nor once a part differs."""

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from pipelines.config import Config, home
from pipelines.config.load import parse, with_absolute_paths
from pipelines.config.messages.words import name_list
from pipelines.config.source.source import FileTableSettings
from pipelines.data.versions import storage
from pipelines.data.versions.folds import select_fold
from pipelines.data.versions.versions import Version, find_by_digest, leave_out_features, open_named_version, open_version
from pipelines.errors import ConfigError, DatasetError, TrainingError
from pipelines.etl.run import run as run_etl
from pipelines.launch.checks import check_before_etl
from pipelines.launch.initial_weights import initial_weights
from pipelines.launch.training_progress import TrainingProgress
from pipelines.launch.verify import Replay, check_is_reproducible, decisive_settings, place_config, replay_config, train_again
from pipelines.lifecycle.statements.attest import write_envelope
from pipelines.lifecycle.statements.checks import (
    PartCheck,
    check_code,
    check_config,
    check_dataset,
    check_environment,
    check_model_files,
    check_row_order,
    check_sections,
    check_signatures,
    check_time,
    list_differences,
)
from pipelines.lifecycle.statements.dataset_record import DATASET
from pipelines.lifecycle.statements.digest_log import read_log_descriptor
from pipelines.lifecycle.statements.envelope import add_signature, read_envelope
from pipelines.lifecycle.statements.keys import key_id, read_private_key, read_public_key
from pipelines.lifecycle.statements.provenance import WEIGHTS, Statement, parse_statement

ACCEPTABLE = ("code", "environment")
"""Parts that may differ, if the verifier says so: the same weights may come of other ones."""


_ANY_SEED = 1
"""In place of a seed that is withheld: nothing is trained with it."""


@dataclass(frozen=True)
class VerificationRequest:
    """A verifier's wishes."""

    statement: str | Path
    key: str | Path = ""
    """File of a public key that one of the signers must have."""
    sign: str | Path = ""
    """File of a private key to sign with, if all is right. The dataset is then made again, even if it is there."""
    model: str | Path = ""
    """Folder of the model's files to compare."""
    accept: Collection[str] = ()
    """Parts of ACCEPTABLE that may differ."""
    digests_only: bool = False
    """Whether to make neither the dataset nor the model again."""
    from_sources: bool = False
    """Whether to make the dataset again even if it is there."""


@dataclass
class Verification:
    checks: list[PartCheck] = field(default_factory=list)
    accepted: tuple[str, ...] = ()
    trained: bool = False
    """Whether the training was done again, to its end or to the first difference."""
    signed_by: str = ""
    """The key that signed beside the others; empty if none did."""

    @property
    def differences(self) -> list[str]:
        """Names of the parts that differ, without those that are accepted."""
        return [name for name in list_differences(self.checks) if name not in self.accepted]

    @property
    def is_right(self) -> bool:
        return not self.differences


def check_statement(
    request: VerificationRequest, config: Config | None = None, tell_check: Callable[[PartCheck], None] = lambda check: None
) -> Verification:
    """Verify a statement, and return what was compared. `config` says where tables, datasets and storage are, and must describe the same
    dataset and model; by default the statement's own says so, with relative paths below LOCKSTEP_HOME. `tell_check` is called with each
    check once it is done.

    Raises ConfigError for a file that is no statement, is of another format, or holds code although no key is given; TrainingError for a
    training that cannot be repeated; and what ETL and training raise."""
    _check_request(request)
    private = read_private_key(request.sign) if request.sign else None
    key = read_public_key(request.key) if request.key else None
    envelope = read_envelope(request.statement)
    statement = parse_statement(envelope.payload, str(request.statement))
    verification = Verification(accepted=tuple(request.accept))

    def add(checks: Iterator[PartCheck]) -> bool:
        for check in checks:
            verification.checks.append(check)
            tell_check(check)
        return verification.is_right

    add(check_signatures(envelope, key))
    if not add(check_sections(statement)):  # both, so that an altered part has its name
        return verification
    stated_config = read_statement_config(statement, config, has_key=key is not None)
    if not add(_static_checks(statement, stated_config, config, request)):
        return verification
    if request.digests_only:
        _verify_present_dataset(statement, stated_config, add)
    else:
        _make_again(statement, stated_config, request, add, verification)
    if private is not None and verification.is_right:
        write_envelope(add_signature(envelope, private), request.statement)
        verification.signed_by = key_id(private.public_key())
    return verification


def _check_request(request: VerificationRequest) -> None:
    """Raise ConfigError for a part that may not differ, and for a signature of what is not compared."""
    if unknown := [name for name in request.accept if name not in ACCEPTABLE]:
        raise ConfigError(f"--accept is {unknown[0]!r}, and only {' and '.join(ACCEPTABLE)} may differ; leave it out")
    if request.sign and (request.digests_only or request.accept):
        flag = "--digests-only" if request.digests_only else "--accept"
        raise ConfigError(f"--sign and {flag} are given, and only what was made again and does not differ is signed; leave one of them out")


def read_statement_config(statement: Statement, config: Config | None, has_key: bool) -> Config:
    """The statement's config, with places that `config` has, or below LOCKSTEP_HOME. Raises ConfigError for code in it without a key."""
    values = statement.config
    task = values.get("task", {})
    if isinstance(task, dict) and task.get("source") and not has_key:
        raise ConfigError(
            f"--statement {statement.place} holds code of its own, task.source, which would be run here; give --key, the public key of a "
            "signer whom you trust"
        )
    if statement.internal.get("withheld"):
        values = {**values, "train": {**values["train"], "seed": _ANY_SEED}}
    stated_config = with_absolute_paths(parse(values, f"--statement {statement.place}", recorded=True), home())
    return stated_config if config is None else _place_statement_config(stated_config, config, statement.metadata["invocationId"])


def _place_statement_config(stated_config: Config, config: Config, run_id: str) -> Config:
    """The statement's config with the paths of another one, and its workers."""
    paths = {name: table.path for name, table in config.source.tables.items() if isinstance(table, FileTableSettings)}
    tables = {
        name: table.model_copy(update={"path": paths[name]}) if isinstance(table, FileTableSettings) and name in paths else table
        for name, table in stated_config.source.tables.items()
    }
    placed_config = place_config(stated_config, config, run_id, TrainingProgress())
    return placed_config.model_copy(update={"source": stated_config.source.model_copy(update={"tables": tables})})


def _static_checks(statement: Statement, stated_config: Config, config: Config | None, request: VerificationRequest) -> Iterator[PartCheck]:
    yield check_time(statement)
    withheld = set(statement.internal.get("withheld", ()))
    yield check_config(statement, stated_config, _decisive_differences(stated_config, config, withheld) if config else {})
    yield check_code(statement, stated_config)
    yield check_environment(statement, stated_config)
    if request.model:
        yield check_model_files(statement, Path(request.model))


def _decisive_differences(stated_config: Config, config: Config, withheld: Collection[str]) -> dict[str, tuple[Any, Any]]:
    """The settings that decide dataset and model and differ, by dotted key, with both values."""
    before, now = (decisive_settings(replay_config(other)) for other in (stated_config, config))
    names = sorted({**before, **now}.keys() - withheld)
    return {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)}


def _verify_present_dataset(statement: Statement, config: Config, add: Callable[[Iterator[PartCheck]], bool]) -> None:
    version = _find_version(statement, config)
    with suppress(DatasetError):
        version = version or open_version(config.dataset.path, config.data_identity)  # which differs, and has a name for what does
    if version is None:
        add(iter([PartCheck("rows", "not checked", f"{config.dataset.path} does not hold the dataset, and --digests-only makes none")]))
    elif add(check_dataset(statement, version, is_from_sources=False)) and statement.internal.get("order"):
        add(iter([check_row_order(statement, config, _fold(config, version))]))


def _make_again(
    statement: Statement,
    config: Config,
    request: VerificationRequest,
    add: Callable[[Iterator[PartCheck]], bool],
    verification: Verification,
) -> None:
    if statement.kind == "training":
        _check_can_train(statement, config)
    with ExitStack() as stack:
        must_make = request.from_sources or bool(request.sign) or statement.kind == "etl"
        version = None if must_make else _find_version(statement, config)
        is_from_sources = version is None
        if is_from_sources:
            _check_can_make(statement)
        version = version or stack.enter_context(_dataset_from_sources(config))
        if not add(check_dataset(statement, version, is_from_sources)) or statement.kind == "etl":
            return
        trained_version = _fold(config, version)
        if not add(iter([check_row_order(statement, config, trained_version)])):
            return
        verification.trained = True
        add(_compare_training(statement, config, trained_version))


def _check_can_train(statement: Statement, config: Config) -> None:
    """Raise TrainingError unless the statement and its strategy suffice to train again."""
    run_id = statement.metadata["invocationId"]
    if withheld := statement.internal.get("withheld"):
        raise TrainingError(
            f"the statement of run {run_id} withholds {name_list(withheld)}, without which it cannot be trained again; compare digests by "
            "--digests-only"
        )
    try:
        check_is_reproducible(run_id, config.train)
    except TrainingError as error:
        raise TrainingError(f"{error}, or compare digests by --digests-only") from error


def _find_version(statement: Statement, config: Config) -> Version | None:
    """The version that the statement names, if it lies in the dataset's folder in the present format."""
    with suppress(DatasetError):
        return find_by_digest(config.dataset.path, statement.dependencies[DATASET]["digest"]["sha256"])
    return None


def _check_can_make(statement: Statement) -> None:
    """Raise DatasetError for a version made by increments, whose sources at once give the same rows in another order, and for one from
    which rows were erased that the sources may have."""
    annotations = statement.dependencies[DATASET].get("annotations", {})
    reasons = {"parent": f"is an increment of {annotations.get('parent')}", "erasures": "has lost rows by an erasure"}
    for reason in (text for name, text in reasons.items() if annotations.get(name)):
        raise DatasetError(
            f"dataset version {annotations.get('version')} {reason}, which one ETL does not repeat; verify it where the version is, "
            "without --sign and --from-sources, or compare digests by --digests-only"
        )


@contextmanager
def _dataset_from_sources(config: Config) -> Iterator[Version]:
    """The version that ETL makes of the raw tables, in a folder of its own that is removed afterwards, as is its run in MLflow."""
    parent = f"{config.train.storage.rstrip('/')}/{config.name}-verify-{uuid4().hex[:8]}"
    dataset = config.dataset.model_copy(update={"path": f"{parent}/data"})
    with TemporaryDirectory(prefix="lockstep-verify-") as folder:
        tracking = config.tracking.model_copy(update={"uri": f"sqlite:///{folder}/mlflow.db"})
        own_config = config.model_copy(update={"dataset": dataset, "tracking": tracking})
        check_before_etl(own_config)
        try:
            manifest = run_etl(own_config)
            yield open_named_version(dataset.path, manifest.version)
        finally:
            filesystem, path = storage.locate(parent)
            storage.remove_folder(filesystem, path)


def _fold(config: Config, version: Version) -> Version:
    version = version if config.train.fold is None else select_fold(version, config.train.fold)
    return leave_out_features(version, config.task.left_out)


def _compare_training(statement: Statement, config: Config, version: Version) -> Iterator[PartCheck]:
    """Train again, and name the first step that differs; or the weights, if no step does."""
    progress, run_id = TrainingProgress(), statement.metadata["invocationId"]
    descriptor = statement.digest_log
    if descriptor is None:
        raise ConfigError(f"the statement of run {run_id} has no digest log; have it made anew, or compare digests by --digests-only")
    digest_log = read_log_descriptor(descriptor)
    recorded_config = replay_config(config)
    rerun_config = place_config(recorded_config, config, run_id, progress)
    initial = initial_weights(rerun_config, version)
    replay = train_again(rerun_config, version, run_id, initial, digest_log, statement.subjects[WEIGHTS], None, progress)
    yield from _training_checks(replay)


def _training_checks(replay: Replay) -> Iterator[PartCheck]:
    if replay.is_identical:
        yield PartCheck("steps", "right", replay.text)
        yield PartCheck("weights", "right", f"trained again: {replay.digest}")
    elif replay.comparison.loss or replay.comparison.tensors:
        yield PartCheck("steps", "differs", replay.text)
    else:
        yield PartCheck("weights", "differs", replay.text)
