"""Ensembles of finished runs: what is chosen and predicted, that it is the same every time, and the runs that are refused, with what the
messages offer instead."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pyarrow as pa
import pytest
from ensembles import Fitted, ensemble_config, file_members, file_run, fill_in, fit, member_config
from groups import run_group
from sklearn.metrics import roc_auc_score
from trainings import FEATURES, open_dataset

from pipelines.applications.ensembles.network import EnsembleNetwork
from pipelines.applications.ensembles.settings import EnsembleSettings
from pipelines.config import Config
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError
from pipelines.launch.checks import check_training
from pipelines.launch.initial_weights import initial_weights
from pipelines.launch.verify import decisive_settings
from pipelines.lifecycle.statements.checks import check_config
from pipelines.lifecycle.statements.finished_run import portable_config
from pipelines.lifecycle.statements.materials import model_descriptors
from pipelines.lifecycle.statements.provenance import Parts, Statement, identities, parse_statement, statement_values
from pipelines.runtime.weights import model_digest
from pipelines.serving.model import Predictor
from pipelines.serving.model.logged_model import read_model
from pipelines.tasks.bind import build_task
from pipelines.tracking.models import run_model_files
from pipelines.tracking.training import ORIGIN_RUNS, open_training
from pipelines.train.workers import WorkerContext

pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass(frozen=True)
class Home:
    folder: Path
    runs: list[str]
    """Of the members."""

    def config(self, runs: list[str] | None = None, task: dict[str, Any] | None = None, **train: Any) -> Config:
        return ensemble_config(self.folder, self.runs if runs is None else runs, task, **train)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("ensemble")
    return Home(folder, file_members(folder))


def read_rows(config: Config, split: str) -> tuple[pa.Table, np.ndarray]:
    """Raw rows and labels, as the served model takes them."""
    reader = Reader(open_dataset(config), split)
    groups = [{name: values.copy() for name, values in reader.read(number).items()} for number in range(len(reader.groups))]
    columns = {name: np.concatenate([group[name] for group in groups]) for name in groups[0]}
    return pa.table({f"x{number}": columns[f"x{number}"] for number in range(FEATURES)}), columns["label"]


def probabilities(uri: str, run: str, rows: pa.Table) -> np.ndarray:
    """Of the second class, by the served model of a run."""
    with run_model_files(uri, run) as (_, folder):
        parts, _ = read_model(folder)
    return Predictor(*parts).predict(rows)["probability_true"].to_numpy()


@pytest.fixture(scope="module")
def fitted(home: Home) -> Fitted:
    return fit(fill_in(home.config()), home.folder / "first")


def test_it_predicts_the_mean_of_its_members_and_beats_them_on_validation(home: Home, fitted: Fitted) -> None:
    config = fill_in(home.config())
    uses = fitted.weights["uses"].tolist()
    assert sum(count > 0 for count in uses) >= 2 and uses[0] == 0, "two of the three, and not the worst"
    run = file_run(config, replace(fitted, trained=replace(fitted.trained, decision={})))
    uri, (rows, labels) = config.tracking.uri, read_rows(config, "validation")
    alone = np.array([probabilities(uri, member, rows) for member in home.runs])
    together = probabilities(uri, run, rows)
    np.testing.assert_allclose(together, np.average(alone, axis=0, weights=uses), atol=1e-6)
    best = max(roc_auc_score(labels, member) for member in alone)
    assert roc_auc_score(labels, together) == pytest.approx(fitted.trained.metrics["validation/auc"], abs=1e-6)
    assert fitted.trained.metrics["validation/auc"] > best
    assert fitted.strategy.metrics()["ensemble/best_member"] == pytest.approx(best, abs=1e-6)
    assert fitted.strategy.metrics()["ensemble/share_2"] == uses[1] / sum(uses)
    assert (fitted.trained.steps, fitted.trained.rows) == (1, len(labels))


def test_the_model_is_the_same_when_it_is_made_again_and_after_a_stop(home: Home, fitted: Fitted) -> None:
    config = fill_in(home.config())
    assert model_digest(fit(config, home.folder / "second").weights) == model_digest(fitted.weights)
    assert not fit(config, home.folder / "stopped", stop_after=0).trained.finished
    assert model_digest(fit(config, home.folder / "stopped").weights) == model_digest(fitted.weights)
    fewer = fill_in(home.config(home.runs[1:]))
    assert model_digest(fit(fewer, home.folder / "fewer").weights) != model_digest(fitted.weights)


def fit_in_group(context: WorkerContext, config: Config, folder: Path) -> tuple[dict[str, Any], str]:
    fitted = fit(config, folder, context)
    return fitted.trained.metrics, model_digest(fitted.weights) if fitted.weights else ""


@pytest.mark.slow
def test_p5_it_is_the_same_for_every_number_of_workers(home: Home, fitted: Fitted, tmp_path: Path) -> None:
    results = run_group(3, tmp_path, fit_in_group, fill_in(home.config()), home.folder / "group")
    assert results[0] == (fitted.trained.metrics, model_digest(fitted.weights))
    assert all(metrics == fitted.trained.metrics for metrics, _ in results)


def test_the_monitored_metric_decides(home: Home, fitted: Fitted) -> None:
    by_loss = fit(fill_in(home.config(monitor="loss")), home.folder / "loss").trained.metrics
    by_auc = fitted.trained.metrics
    assert by_loss["validation/loss"] < by_auc["validation/loss"] and by_loss["validation/auc"] <= by_auc["validation/auc"]


def test_a_run_names_the_runs_of_its_members(home: Home) -> None:
    config = fill_in(home.config())
    assert isinstance(config.task, EnsembleSettings)
    assert list(config.task.origins) == home.runs
    run = open_training(config, open_dataset(config), {})
    logged = mlflow.MlflowClient(config.tracking.uri).get_run(run.run_id).data
    assert logged.tags[ORIGIN_RUNS] == ", ".join(home.runs)
    assert logged.params["task.of"] == str(home.runs)
    assert all(member.digest in logged.params["task.members"] for member in config.task.members)
    mlflow.MlflowClient(config.tracking.uri).delete_run(run.run_id)
    described = {descriptor["name"]: descriptor["digest"]["sha256"] for descriptor in model_descriptors(config)}
    assert described == {f"model/{member.run}": member.digest for member in config.task.members}
    assert config.model_identity != fill_in(home.config(home.runs[1:])).model_identity
    assert decisive_settings(config) == decisive_settings(home.config()), "what is filled in is no difference to a verification"


def statement_about(config: Config, digests: dict[str, str]) -> Statement:
    """A statement about an ensemble, whose members have these digests."""
    models = [{"name": f"model/{run}", "digest": {"sha256": digest}} for run, digest in digests.items()]
    times = {"started": "2026-01-01T00:00:00Z", "finished": "2026-01-01T00:00:01Z"}
    parts = Parts("training", {"weights": "ab"}, portable_config(config), identities(config), {}, models, "1f", **times)
    return parse_statement(json.dumps(statement_values(parts, "0.1.0")).encode(), "S.json")


def test_a_statement_with_other_members_than_its_config_differs(home: Home) -> None:
    config = fill_in(home.config())
    honest, forged = (statement_about(config, {**config.task.origins, **change}) for change in ({}, {home.runs[0]: "ef" * 32}))
    assert check_config(honest, config, {}).outcome == "right"
    assert check_config(forged, config, {}).text == (
        f"model/{home.runs[0]} is not the model that task.members names in the config of the statement"
    )
    assert honest.internal["sections"]["weights"] != forged.internal["sections"]["weights"]


def test_weights_that_are_not_those_of_the_digest_are_refused(home: Home) -> None:
    config = fill_in(home.config())
    assert isinstance(config.task, EnsembleSettings)
    first, *last_two = config.task.members
    altered = (first.model_copy(update={"digest": "ab" * 32}), *last_two)
    wrong = config.model_copy(update={"task": config.task.model_copy(update={"members": altered})})
    with pytest.raises(
        ConfigError, match=r"has digest abababababab of run .*, whose model has .*; train that model again, and name the new"
    ):
        initial_weights(wrong, open_dataset(config))
    with pytest.raises(
        ConfigError, match=r"^task\.members is not what the runs .* have recorded in .*; remove it for another ensemble, or"
    ):
        fill_in(wrong)
    assert fill_in(config) == config, "what the runs have recorded may stand in the file"
    assert initial_weights(config, open_dataset(config)) is not None  # of runs that have the models which they recorded


def test_before_the_runs_are_read_there_is_no_model(home: Home) -> None:
    config = home.config()
    check_training(config, open_dataset(config))
    task = build_task(config.task, open_dataset(config).manifest)
    with pytest.raises(
        ConfigError, match=r"^task\.members is empty: what the 3 runs of task\.of have recorded is filled in by a training; tr"
    ):
        task.model()
    assert isinstance(build_task(fill_in(config).task, open_dataset(config).manifest).model(), EnsembleNetwork)


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        ([], "of names no runs, and an ensemble has two members or more; add runs"),
        (["a"], "of names 1 run, and an ensemble has two members or more; add runs"),
        (["a", "b", "a"], "of names run a twice, and the selection itself repeats good members; name each run once"),
        (["a", "models:/m-1"], "of names models:/m-1, but members are runs; give the ID of the run that trained the model"),
    ],
)
def test_runs_that_name_no_ensemble(home: Home, runs: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        home.config(runs)
    assert home.config(["a", "b"]).task.kind == "ensemble"  # two, each once, by their IDs


def refusal(home: Home, config: Config) -> str:
    with pytest.raises(ConfigError) as error:
        fill_in(config)
    (line,) = str(error.value).splitlines()
    return line


def test_a_run_that_does_not_exist_or_is_none_of_a_training_is_refused(home: Home) -> None:
    assert "has no run 0123; use the ID of a training" in refusal(home, home.config([*home.runs, "0123"]))


@pytest.mark.parametrize("status", ["FAILED", "KILLED", "RUNNING", "SCHEDULED"])
def test_a_member_that_is_not_finished_is_refused(home: Home, status: str) -> None:
    config = home.config()
    client = mlflow.MlflowClient(config.tracking.uri)
    client.update_run(home.runs[0], status=status)
    try:
        assert refusal(home, config) == (
            f"task.of has run {home.runs[0]}, which is {status}; wait until it is FINISHED, run its command again to resume it, or remove "
            "it from task.of"
        )
        fill_in(home.config(home.runs[1:]))  # removed
    finally:
        client.update_run(home.runs[0], status="FINISHED")
    fill_in(config)  # waited


def test_a_member_whose_digest_is_gone_is_refused(home: Home) -> None:
    client, config = mlflow.MlflowClient(home.config().tracking.uri), home.config()
    digest = client.get_run(home.runs[1]).data.tags["model.digest"]
    client.delete_tag(home.runs[1], "model.digest")
    try:
        assert refusal(home, config).endswith("in which MLflow has no digest of a model any more; train that model again")
    finally:
        client.set_tag(home.runs[1], "model.digest", digest)
    fill_in(config)


def change_config(home: Home, number: int, change: Callable[[dict[str, Any]], None], **tags: str) -> str:
    """The ID of a finished run like that of a member, whose recorded config and tags are changed."""
    client = mlflow.MlflowClient(home.config().tracking.uri)
    source = client.get_run(home.runs[number])
    own_tags = {name: value for name, value in source.data.tags.items() if not name.startswith("mlflow.")}
    run = str(client.create_run(source.info.experiment_id, tags={**own_tags, **tags}).info.run_id)
    values = json.loads(Path(client.download_artifacts(home.runs[number], "config.json")).read_bytes())
    change(values)
    client.log_dict(run, values, "config.json")
    client.set_terminated(run)
    return run


def log_encoders(home: Home, run: str, changes: dict[str, dict[str, Any]]) -> None:
    """Have a run's manifest say something else of columns."""
    manifest = open_dataset(home.config()).manifest
    encoders = {name: fitted.model_copy(update=changes.get(name, {})) for name, fitted in manifest.encoders.items()}
    content = manifest.model_copy(update={"encoders": encoders}).to_json().decode()
    mlflow.MlflowClient(home.config().tracking.uri).log_text(run, content, "manifest.json")


def leave(values: dict[str, Any]) -> None:
    """Change nothing."""


def test_a_member_of_another_dataset_is_refused_by_what_differs(home: Home) -> None:
    digest = open_dataset(home.config()).digest[:12]
    run = change_config(home, 0, leave, **{"dataset.digest": "cd" * 32})
    line = refusal(home, home.config([run, *home.runs]))
    assert line == (
        f"task.of has run {run}, which was trained on dataset digest cdcdcdcdcdcd, and this one has {digest}; set source and dataset to "
        "those of all members, or train that model on this dataset"
    )

    log_encoders(home, run, {"label": {"state": {"classes": ["no", "yes"], "counts": [1, 1]}}})
    assert refusal(home, home.config([run, *home.runs])) == (
        f"task.of has run {run}, which knows the classes no, yes, and the dataset has false, true; train that model on this dataset, or "
        "remove the run from task.of"
    )

    columns = {name: fitted.column for name, fitted in open_dataset(home.config()).manifest.encoders.items()}
    roles = {"label": "feature", "x1": "target"}
    log_encoders(home, run, {name: {"column": replace(columns[name], role=role)} for name, role in roles.items()})  # type: ignore[arg-type]
    assert refusal(home, home.config([run, *home.runs])) == (
        f"task.of has run {run}, which predicts x1, and the dataset's target is label; remove the run from task.of"
    )
    fill_in(home.config())  # removed, and of this dataset


def test_a_member_of_another_fold_is_refused(home: Home) -> None:
    run = change_config(home, 0, lambda values: values["train"].update(fold=2))
    line = refusal(home, home.config([run, *home.runs]))
    assert line.endswith("which was trained on fold 2, and this is fold None; set train.fold to that of all members")


def test_a_member_of_another_loss_or_kind_is_refused(home: Home) -> None:
    own_code = change_config(home, 0, lambda values: values.update(task={"kind": "mypackage:Net"}))
    unknown = change_config(home, 0, lambda values: values.update(task={"kind": "astrology"}))
    assert "kind mypackage:Net, whose code is not of this project and would not go with the model; remove the run from task.of" in refusal(
        home, home.config([own_code, *home.runs])
    )
    line = refusal(home, home.config([unknown, *home.runs]))
    assert "of kind astrology, which this installation does not know: no kind 'astrology'" in line and "; remove the run from" in line
    fill_in(home.config(home.runs[1:]))  # without them


def test_without_rows_of_validation_nothing_can_be_chosen(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    config, version = fill_in(home.config()), open_dataset(home.config())
    check_training(config, version)  # with a share
    monkeypatch.setattr(Version, "rows", lambda version, split: 0 if split == "validation" else 800)
    with pytest.raises(ConfigError, match=r"has no rows, by which the members of an ensemble are chosen; give dataset\.split a share"):
        check_training(config, version)


def test_another_task_has_no_members_to_choose(home: Home) -> None:
    with pytest.raises(
        ConfigError, match=r"train\.strategy is ensemble_selection, which trains no task of kind tabular; set task\.kind to ens"
    ):
        member_config(home.folder, 1, strategy="ensemble_selection")
