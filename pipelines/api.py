"""The commands as functions, for notebooks and programs.

    from pipelines import api

    run = api.fit(frame, target="left")          # the whole way, with the settings that `init` chooses
    run.metrics["test/auc"], run.page
    run.predict(new_rows)                        # a frame in, a frame out

    draft = api.init("data/raw/churn.csv", target="left")    # writes conf/churn.yaml; tune="10m" gives its search that budget
    config = api.read_config("conf/digits.yaml", {"train.epochs": 2})    # or api.Config(name="digits", source=…), without a file
    manifest = api.prepare(config)               # a dataset version, as `lockstep etl` makes it
    result = api.train(config)                   # its model in MLflow, as `lockstep train` does
    result.metrics["test/accuracy"]              # of the best epoch, on validation and test, by name
    api.cross_validate(config)                   # a model for each fold of `dataset.split.folds`, as `lockstep train` does
    for batch in api.open_loader(config): ...    # the rows that a training reads, in its order
    model = api.load_model(config, result.model)

Each function imports the libraries that it needs: only `prepare`, `baseline`, `promote` and `predict` import Spark, only `train` and
`verify` Ray. All raise the LockstepErrors of `pipelines.errors`. SIGINT, the interrupt of a notebook, ends any as KeyboardInterrupt: a
training has saved by then and the same call resumes it, and a Spark or a Ray that was there before goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipelines import config as configs
from pipelines.config import home, load
from pipelines.config.load import parse, with_absolute_paths
from pipelines.config.paths import absolute_path
from pipelines.notebook.python_config import build_config
from pipelines.runtime.imports import import_modules
from pipelines.runtime.interrupts import restored_signals

if TYPE_CHECKING:
    from mlflow.pyfunc import PyFuncModel
    from numpy import ndarray
    from pyarrow.dataset import Dataset

    from pipelines.data.loader import Loader, Order
    from pipelines.data.versions.manifest import Manifest
    from pipelines.data.versions.versions import Version
    from pipelines.diff.comparison import VersionChanges
    from pipelines.doctor.examine import Diagnosis
    from pipelines.init.draft import Draft
    from pipelines.launch.cross_validation import CrossValidation
    from pipelines.launch.training_run import Result
    from pipelines.lifecycle.clean.cleaning import Cleaning, CleaningItem
    from pipelines.lifecycle.erasure.erase import ErasureResult
    from pipelines.lifecycle.statements.attest import Attestation
    from pipelines.lifecycle.statements.checks import PartCheck
    from pipelines.lifecycle.statements.verification import Verification
    from pipelines.notebook.fitted_model import FittedModel
    from pipelines.planner.plan import TrainingPlan
    from pipelines.runtime.notebook_html import HtmlPage
    from pipelines.serving.batch.predictions_manifest import Predictions
    from pipelines.serving.registry.promote import Promotion
    from pipelines.tuning.search_result import SearchResult


Config = build_config


def read_config(path: str | Path, overrides: Mapping[str, Any] | None = None) -> configs.Config:
    """Read a pipeline's YAML file, with overrides by dotted key. Relative paths start at LOCKSTEP_HOME, by default the
    current folder."""
    return with_absolute_paths(load(path, dict(overrides or {})), home())


def init(
    data: str | Path,
    target: str = "",
    output: str | Path = "",
    rehearse: bool = True,
    skip_rows: int | None = None,
    tune: str = "",
) -> Draft:
    """Draft the config of a file or a folder of data, and write it to a new file, by default conf/NAME.yaml. `skip_rows` lines of a table
    stand before the names of its columns; by default that is found out. Its section `tune` has a search that suits the task, with the
    budget `tune`, such as 10m: `prepare` and the function `tune` run it.

    With `rehearse`, ETL first makes a version of a sample with it, in another process, which takes some seconds. Returns the draft, with
    what it assumed. Raises ConfigError or SourceError, and writes nothing, if no config can be made, or if ETL would refuse it."""
    from pipelines.rehearsal.process import RehearsalProcess

    with RehearsalProcess() if rehearse else nullcontext() as process:  # its Spark starts while this process imports what drafts
        from pipelines.init import draft as drafts
        from pipelines.rehearsal.rehearsal import Rehearsal

        output = drafts.config_path(data, output)
        drafts.check_output(output)
        from pipelines.init.drafting import draft_config
        from pipelines.init.search_section import read_budget
        from pipelines.tuning.space import check_search
        from pipelines.tuning.winner_file import winner_path

        budget = read_budget(tune)
        if budget is not None:
            winner_path(str(output), "")

        def check_draft(values: Mapping[str, Any]) -> tuple[str, ...]:
            if "tune" in values:
                check_search(parse(deepcopy(dict(values)), str(output)), str(output))
            if rehearsal:
                return rehearsal.try_draft(values)
            from pipelines.launch.checks import check_before_etl

            check_before_etl(parse(dict(values), str(output)))
            return ()

        request = drafts.Request(drafts.path_in_config(data, home()), target, drafts.pipeline_name(output), skip_rows, budget)
        rehearsal = Rehearsal(process, str(output)) if process else None
        if rehearsal:
            request = replace(request, announce=lambda sections: rehearsal.announce(drafts.plain_values(drafts.Draft(sections))))
        draft = draft_config(request)
        outcome = drafts.write_config(draft, output, check_draft)
    return replace(draft, assumptions=(*draft.assumptions, *outcome))


@restored_signals("pipelines.notebook.frames", "pipelines.notebook.fitted_model", "pipelines.etl.run", "pipelines.launch.training_run")
def fit(data: Any, target: str = "", overrides: Mapping[str, Any] | None = None, name: str = "", task: Any = None) -> FittedModel:
    """From data to a model in MLflow, with the settings that `init` chooses, and `overrides` by dotted key.

    `data` is a path, or a frame of pandas, Polars, Arrow or Spark, which is stored in LOCKSTEP_HOME/data/frames by the digest of its
    rows: equal rows and settings make the same model, or find that of a finished run. `name` is that of the pipeline and its experiment.
    `task` replaces the network: a function that takes the encoded columns and returns a torch.nn.Module, or the values of `task`. Raises
    ConfigError or SourceError before anything starts, if no config can be made, and before the training, if the model could not take frames
    like this one."""
    from pipelines.launch.checks import check_fold
    from pipelines.notebook.frames import first_config, is_frame

    config = first_config(data, target, overrides or {}, name, task)
    check_fold(config)
    manifest = prepare(config)
    from pipelines.launch.training_run import find_result
    from pipelines.notebook.fitted_model import FittedModel
    from pipelines.notebook.frame_query import check_frame_is_served

    if is_frame(data):
        check_frame_is_served(config, manifest)
    return FittedModel(config, manifest, find_result(config) or train(config))


@restored_signals("pipelines.spark.early_start")
def prepare(config: configs.Config, parent: str = "") -> Manifest:
    """Make the dataset version that the config describes, unless it exists. Its run in MLflow has a page about the data. With the name of a
    `parent` version, or "previous", only rows that came after it are read, and its parts are shared.

    Raises ConfigError before it reads anything if the task does not fit the columns. What only the rows decide is a warning at the end."""
    from pipelines.etl import WORKER_MODULES
    from pipelines.spark.early_start import started_early

    modules = ("pipelines.etl.run", "pipelines.launch.checks", "pipelines.report.data_profile")
    with started_early(config.name, *WORKER_MODULES), restored_signals(*modules):  # Spark starts while this process imports them
        from pipelines.etl.run import run
        from pipelines.launch.checks import check_before_etl, refusal
        from pipelines.report.data_profile import profile_files

        check_before_etl(config)
        manifest = run(config, profile_files, parent)
        if refused := refusal(config):
            logging.getLogger(__name__).warning("a training with this config would be refused: %s", refused)
        return manifest


@restored_signals("pipelines.data.versions.folds", "pipelines.launch.cluster")
def train(config: configs.Config, version: Version | None = None) -> Result:
    """Train the model on that version, or resume an interrupted run, and log the model in MLflow. `version` is in place of the one that
    the config describes, such as one of `from_parquet`."""
    from pipelines.data.versions.folds import open_fold, training_version
    from pipelines.launch.cluster import cluster

    version, plan = training_version(config, version) if version else open_fold(config), None
    if config.train.parallel.kind == "auto":
        from pipelines.planner.at_hand import choose_layout

        plan = choose_layout(config, version)
        config = plan.config

    def prepare_driver() -> None:
        """Import what the driver needs, and connect to MLflow's file: together as long as a Ray takes to start."""
        import_modules(["pipelines.launch.training_run"])
        from pipelines.tracking import connect_early

        connect_early(config.tracking.uri)

    with cluster(config.train, prepare_driver) as ray_output:
        from pipelines.launch.training_run import train

        return train(config, version, ray_output=ray_output, plan=plan)


@restored_signals("pipelines.launch.cross_validation")
def cross_validate(config: configs.Config) -> CrossValidation:
    """Train a model for each fold of `dataset.split.folds`, as `lockstep train` does, and log mean and deviation of their metrics. `train`
    with `train.fold` trains one of them."""
    if config.train.parallel.kind == "auto":
        from pipelines.planner.at_hand import choose_layout_of_folds

        config = choose_layout_of_folds(config)
    from pipelines.launch.cross_validation import train_folds

    return train_folds(config)


@restored_signals("pipelines.tuning.driver")
def tune(config: configs.Config, origin: str | Path = "", output: str | Path = "") -> SearchResult:
    """Search the settings of `config.tune.space`, and train the winner to the end, and with fresh seeds. The winner's config is written to
    `output`, by default NAME_tuned.yaml beside `origin`, the config's file NAME.yaml; without an origin, nowhere."""
    from pipelines.tuning.driver import run_search

    return run_search(config, str(origin), str(output))


@restored_signals("pipelines.launch.verify")
def verify(config: configs.Config, run_id: str, steps: int | None = None) -> bool:
    """Train a finished run again, or its first steps, and return whether the result is bitwise identical."""
    from pipelines.launch.verify import verify

    return verify(config, run_id, steps)


def make_keys(path: str | Path, kind: Literal["p256", "ed25519"] = "p256") -> Path:
    """Write a new private key, and its public key to `path`.pub, whose path is returned. Neither is written over. The private key is
    encrypted if LOCKSTEP_KEY_PASSPHRASE is set."""
    from pipelines.lifecycle.statements.keys import create_keys

    return create_keys(path, kind)


@restored_signals("pipelines.lifecycle.statements.attest")
def attest(config: configs.Config, key: str | Path, output: str | Path, run_id: str = "", documents: str | Path = "") -> Attestation:
    """Sign a statement of what a finished run was made from, or without `run_id` the dataset version of the config, with the private key
    in the file `key`, and write it to `output`. `documents` is a folder for the signature of the model's files, a bill of materials and a
    model card; a description of the dataset goes into the dataset's folder."""
    from pipelines.lifecycle.statements.attest import sign_statement

    return sign_statement(config, key, output, run_id, documents)


@restored_signals("pipelines.lifecycle.statements.verification")
def verify_statement(
    statement: str | Path,
    config: configs.Config | None = None,
    *,
    key: str | Path = "",
    sign: str | Path = "",
    model: str | Path = "",
    accept: Sequence[str] = (),
    digests_only: bool = False,
    from_sources: bool = False,
    tell_check: Callable[[PartCheck], None] = lambda check: None,
) -> Verification:
    """Check a statement of `attest`, make the dataset again if it is not there, train again, and compare.

    `key` is the file of a public key that must have signed, `sign` that of a private key to sign with too if all is right, `model` a folder
    of the model's files, and `accept` names parts that may differ, `code` and `environment`. With `digests_only`, nothing is made again;
    with `from_sources`, the dataset is even if it is there. `config` says where tables and storage are, by default the statement's own."""
    from pipelines.lifecycle.statements.verification import VerificationRequest, check_statement

    request = VerificationRequest(statement, key, sign, model, accept, digests_only, from_sources)
    return check_statement(request, config, tell_check)


@restored_signals("pipelines.serving.export.export_folder")
def export(config: configs.Config, run_id: str, target: str) -> Path:
    """Write the model of a run for a target such as `onnx`, compare it with the model in MLflow, and return its folder."""
    from pipelines.serving.export.export_folder import export

    return export(config, run_id, target)


@restored_signals("pipelines.launch.spark_baseline")
def baseline(config: configs.Config, model: str = "linear") -> dict[str, float]:
    """Fit a model of Spark ML on that version, `linear`, `forest` or `boosting`, and return its metrics, `validation/…` and `test/…`."""
    from pipelines.launch.spark_baseline import fit_baseline

    return fit_baseline(config, model)


def report(uri: str, *run_ids: str) -> HtmlPage:
    """The page of a run in MLflow, or a comparison of several, as HTML, which a notebook shows; of an ETL, the page about its data. `uri`
    is that of `config.tracking`."""
    from pipelines.report.command import report_page
    from pipelines.runtime.notebook_html import HtmlPage

    return HtmlPage(report_page(uri, run_ids))


def diff(
    before: str,
    now: Any = "",
    output: str = "",
    psi: float | None = None,
    missing: float | None = None,
    chance: float | None = None,
) -> VersionChanges:
    """Compare two dataset versions, or a version and raw rows, such as the input of predictions.

    `before` is the folder of a version, or that of a dataset, whose newest version is taken, or a config's YAML file. `now` is another
    version, the folder of `predict`, files of raw rows, or a frame of pandas, Polars or Arrow; without it, the last two versions of the
    dataset are compared. `output` is the file of a page to write. A column is named if it differs by more than `psi` (0.1) or `missing`
    (0.01) and beyond `chance` (0.01). Raises DatasetError or SourceError if there is nothing to compare."""
    from pipelines.diff import compare_paths as paths
    from pipelines.diff.sides import are_predictions

    limits = paths.read_limits({"psi": psi, "missing": missing, "chance": chance})
    first = read_config(before).dataset.path if before.endswith((".yaml", ".yml")) else absolute_path(before, home())
    if not isinstance(now, str):
        from pipelines.notebook.frames import plain_table

        compared = paths.compare_with_rows(first, plain_table(now), "the rows", limits)
    elif now and are_predictions(second := absolute_path(now, home())):
        compared = paths.compare_with_rows(first, open_predictions(second).to_table(), second, limits)
    else:
        compared = paths.compare_paths(first, now and absolute_path(now, home()), limits)
    if output:
        paths.write_page(compared, absolute_path(output, home()))
    return compared.difference


def plan(
    config: configs.Config | None = None,
    hardware: str = "",
    model: str = "",
    layout: str = "",
    microbatch: int = 0,
    accumulation: int = 0,
    global_batch: int = 0,
    rows: float = 0.0,
    deadline: str = "",
    budget: float = 0.0,
    measure: bool = False,
) -> TrainingPlan:
    """List the layouts with which a config, or a transformer `model`, trains on `hardware`, such as `h200x8,a100x64`, the fastest first.

    `model` is a name such as llama3-8b, or a shape such as `layers=32,width=4096,…`. `layout` is the only one to estimate, such as
    `replicate=1,shard=8`. `rows` are those to train on in all, by default those of the dataset version times the epochs. `deadline` is a
    time such as 4h, and `budget` an amount in the currency of the prices. With `measure`, passes of the model are timed on this machine,
    for the hardware `here`. Raises ConfigError if something is unknown or nothing fits."""
    from pipelines.planner.plan import PlanRequest, make_plan

    folder = home() / "conf" / "hardware"
    numbers = (microbatch, accumulation, global_batch, rows)
    return make_plan(PlanRequest(hardware, model, layout, *numbers, deadline, budget, folder, measure), config)


@restored_signals("pipelines.lifecycle.clean.cleaning")
def clean(config: configs.Config, yes: bool = False, tell_item: Callable[[CleaningItem], None] = lambda item: None) -> Cleaning:
    """Say which versions of the config's dataset nobody needs, by `dataset.keep`, and which checkpoints of ended trainings; with `yes`,
    remove them. `tell_item` is called with each as it is decided, or removed.

    Raises TrackingError, and removes nothing, if MLflow cannot say which versions models and runs need."""
    from pipelines.lifecycle.clean.cleaning import clean_dataset

    return clean_dataset(config, yes, tell_item)


def open_loader(data: configs.Config | Version, split: str = "train", order: Order | None = None) -> Loader:
    """Open the version of a config, or a version, as batches of tensors, one epoch after another.

    The order of a config is by default that of a training, and of a version `Order()`, with steps of 512 rows."""
    from pipelines.data.loader import Loader, Order
    from pipelines.data.versions.folds import open_fold
    from pipelines.data.versions.versions import include_passthrough
    from pipelines.train.run_context import train_order

    if isinstance(data, configs.Config):
        version = include_passthrough(open_fold(data), data.task.passthrough)
        return Loader(version, split, order or train_order(data))
    return Loader(data, split, order or Order())


def from_parquet(path: str | Path, target: str, split: str = "train", classes: int | None = None) -> Version:
    """A folder of plain Parquet files with columns of numbers, as a dataset version, without ETL. Folders `train`, `validation` and `test`
    in it are splits; files elsewhere are of `split`. `classes` is their number if the target holds numbers of classes, from 0.

    Only footers are read. Raises DatasetError if the files' columns differ, or one of them holds no numbers."""
    from pipelines.data.versions.plain import open_parquet

    return open_parquet(absolute_path(str(path), home()), target, split, classes)


def write_arrays(path: str | Path, splits: Mapping[str, Mapping[str, ndarray]], target: str, classes: int | None = None) -> Version:
    """Write NumPy arrays as the only dataset version in a new folder: for each split, an array of shape (rows, …) by column.

    Raises DatasetError if the folder has other rows already, or if the columns of the splits differ."""
    from pipelines.notebook.plain_data import write_splits

    return write_splits(absolute_path(str(path), home()), splits, target, classes)


def config_for_version(version: Version, name: str, task: Any = "tabular", **sections: Any) -> configs.Config:
    """A config to train a version with that has none, such as one of `from_parquet`. `sections` are `train` and `tracking`, as for
    `Config`."""
    from pipelines.notebook.plain_data import plain_config

    return plain_config(version, name, task, **sections)


def load_model(config: configs.Config, uri: str = "") -> PyFuncModel:
    """Load a model from MLflow, `models:/…`; without a URI, the newest one of the config's experiment."""
    from pipelines import tracking
    from pipelines.serving import model as serve

    return serve.load_model(config.tracking.uri, uri or tracking.newest_model(config))


@restored_signals("pipelines.serving.registry.promote")
def promote(config: configs.Config, run_id: str) -> Promotion:
    """Make the model of a run the champion of MLflow's registry if it passes the gates of `config.registry`."""
    from pipelines.serving.registry.promote import promote

    return promote(config, run_id)


@restored_signals("pipelines.serving.registry.promote")
def rollback(config: configs.Config) -> Promotion:
    """Make the champion before the present one the champion again."""
    from pipelines.serving.registry.promote import rollback

    return rollback(config)


@restored_signals("pipelines.serving.batch.predict_tables")
def predict(config: configs.Config, model: str, output: str, inputs: Sequence[str] = (), keep: Sequence[str] = ()) -> Predictions:
    """Predict the rows of `inputs`, `[TABLE=]PATH`, with the model `models:/…`, into a folder, unless that is done already.

    Without inputs, the tables of the config are read. `keep` are the columns to write beside the predictions, by default all."""
    from pipelines.serving.batch.predict_tables import predict_tables

    return predict_tables(config, model, inputs, absolute_path(output, home()), keep)


@restored_signals("pipelines.lifecycle.erasure.erase")
def erase(
    config: configs.Config, *keys: str, grace_seconds: float | None = None, yes: bool = False, predictions: Sequence[str] = ()
) -> ErasureResult:
    """Erase the rows of keys, such as "id=17" or "customer=17,day=2026-01-01", from every version of the dataset's folder; unless `yes`,
    only say what would be erased. Without keys, go on with what was interrupted, and remove old files whose grace time, a day, is over.

    `predictions` are outputs of `predict` to erase from as well. Returns the versions and models concerned, and the certificates."""
    from pipelines.lifecycle.erasure.erase import erase_rows

    places = [absolute_path(path, home()) for path in predictions]
    return erase_rows(config, keys, grace_seconds, yes, places)


def diagnose(config: configs.Config | None = None) -> Iterator[Diagnosis]:
    """Examine this machine, and the servers of a config: a line for each check, with its remedy where something is wrong."""
    from pipelines.doctor.examine import diagnoses

    return diagnoses(config)


def open_predictions(output: str) -> Dataset:
    """The predictions in a folder of `predict` that were made or confirmed last."""
    from pipelines.serving.batch.predictions_manifest import open_predictions

    return open_predictions(absolute_path(output, home()))
