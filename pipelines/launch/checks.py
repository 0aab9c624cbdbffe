"""Checks before a training starts; ETL makes them too, as soon as it can. Loads no Ray."""

import logging
from contextlib import suppress

from pipelines.config import Config
from pipelines.config.dataset.dataset import FoldSplit
from pipelines.config.effects import PlannedRun, ineffective_settings_in_run
from pipelines.config.messages.words import name_list, suggestion
from pipelines.data.versions.folds import open_fold
from pipelines.data.versions.schema import ROW_KEYS, ROW_NUMBERS
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError, DatasetError, TrainingError
from pipelines.tasks.bind import build_task, check_task
from pipelines.train.initial_model import check_fine_tuning, check_single_rows, has_batch_norm, meta_model
from pipelines.train.run_context import epoch_steps, total_steps
from pipelines.train.strategy import strategy_class

log = logging.getLogger(__name__)


def check_training(config: Config, version: Version) -> None:
    """Raise TrainingError or ConfigError, before anything starts, for settings that this dataset version cannot be trained with."""
    check_fold(config)
    check_left_out_features(config, version)
    settings, rows = config.train, version.rows("train")
    try:
        steps = total_steps(config, rows)
    except ConfigError as error:
        raise TrainingError(f"split train of {version.root}: {error}") from error
    _check_changes(config, epoch_steps(config, rows), steps)
    task = build_task(config.task, version.manifest)
    task.choose_monitor(settings.monitor)
    task.details()
    task.check()
    if settings.freeze or settings.lr_factors or settings.lora or settings.optimizer == "muon":
        with suppress(NotImplementedError, RuntimeError):  # a model that can only be built with values is checked by the workers
            check_fine_tuning(settings, meta_model(task))
    strategy_class(settings).check(settings, task, version)
    check_single_rows(settings, task, rows)
    run = PlannedRun(version.root, steps, version.rows("validation"), lambda: has_batch_norm(settings, task, if_unknown=True))
    if faults := [f"{name} {fault}" for name, fault in ineffective_settings_in_run(config, run)]:
        raise ConfigError("; ".join(faults))
    if settings.balance.kind == "auto" and not settings.strategy.balances:
        raise ConfigError(f"train.balance is auto, which strategy {settings.strategy.kind} does not support; set it to equal")
    unit, units = settings.unit_of_work
    busy = units / (settings.max_readers * -(-units // settings.max_readers))
    if busy < 0.9 and settings.strategy.waits_for_all:
        log.warning(
            "%d workers share %d %ss unevenly and are busy %.0f %% of the time; choose a number that divides them",
            *(settings.max_readers, units, unit, 100 * busy),
        )


def check_fold(config: Config) -> None:
    """Raise ConfigError if one model is to be trained on a dataset of folds, and the config does not say on which."""
    if isinstance(config.dataset.split, FoldSplit) and config.train.fold is None:
        raise ConfigError(
            "dataset.split has folds, and this is for one model; set train.fold, as to 1, give dataset.split shares, or train a model for "
            "each fold by jobs/train.py or api.cross_validate"
        )


def _check_changes(config: Config, steps_of_epoch: int, steps: int) -> None:
    """Raise ConfigError if no step follows the last of `train.changes` in a run of so many steps."""
    last = config.train.changes[-1].after_epoch if config.train.changes else 0
    if last and (step := last * steps_of_epoch) >= steps:
        raise ConfigError(
            f"train.changes has one after epoch {last}, which is step {step}, and train.max_steps is {steps}; raise it to more than that "
            "step, or remove the change"
        )


def check_left_out_features(config: Config, version: Version) -> None:
    """Raise ConfigError if `task.use` names no feature of the version, whose names may follow from its rows, or leaves all of them out."""
    columns = {column.name: column for column in version.columns if column.role != "target"}
    for name in config.task.left_out:
        if name not in columns:
            remedy = suggestion(name, columns, "remove it from task.use")
            raise ConfigError(f"task.use has {name}, which is no column of {version.root}; {remedy}")
    if config.task.left_out and all(name in config.task.left_out or columns[name].role == "carried" for name in columns):
        raise ConfigError(f"task.use leaves out each feature of {version.root}; use one of {name_list(columns)}")


def check_before_etl(config: Config) -> None:
    """Raise ConfigError for a task or a strategy that does not fit the columns, or a column with a name that batches need.

    No row can change these, so ETL checks them before it reads any."""
    if reserved := {ROW_NUMBERS, ROW_KEYS} & config.dataset.encoders.keys():
        raise ConfigError(f"a column of dataset is called {reserved.pop()}, a name that batches need; rename the feature")
    config.dataset.check_files()
    check_task(config)
    if config.dataset.is_resolved:  # else the dataset version says which columns there are
        config.train.strategy.check_columns({name: settings.encoder for name, settings in config.dataset.encoders.items()}, "dataset")


def refusal(config: Config) -> str:
    """Return why a training would refuse the newest dataset version of this config; empty if it would not, or if there is none."""
    if isinstance(config.dataset.split, FoldSplit) and config.train.fold is None:
        config = config.model_copy(update={"train": config.train.model_copy(update={"fold": 1})})
    try:
        check_training(config, open_fold(config))
    except DatasetError:
        return ""
    except (ConfigError, TrainingError) as error:
        return str(error)
    return ""
