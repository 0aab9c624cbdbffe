"""A logged model after its training: Spark predicts with it, and the registry makes it the champion or refuses it."""

import json
import logging
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from people import ROWS, write_pipeline
from promotions import finished_run, untrained_weights
from pyspark.sql import SparkSession
from shared_models import SharedProcesses, shared_processes
from stores import new_store

from pipelines import api
from pipelines.config import Config
from pipelines.errors import ConfigError, LockstepError, QualityError, RefusedError, SourceError, TrackingError
from pipelines.serving.batch import fetched_model


@pytest.fixture(scope="module")
def config(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A pipeline with its dataset version. Comparisons are by the loss, since its labels are random."""
    folder = tmp_path_factory.mktemp("people")
    path = write_pipeline(folder, new_store(folder), files=3)
    config = api.read_config(path, {"task.hidden": [8], "registry.metric": "loss", "registry.tolerance": 0.0, "registry.resamples": 200})
    api.prepare(config)
    return config


@pytest.fixture(scope="module")
def good(config: Config) -> tuple[str, str]:
    return finished_run(config, untrained_weights(config, seed=1))


@pytest.fixture(scope="module")
def processes() -> Iterator[SharedProcesses]:
    with shared_processes() as processes:
        yield processes


def registry_config(config: Config, **registry: Any) -> Config:
    return config.model_copy(update={"registry": config.registry.model_copy(update=registry)})


def raw(config: Config, folder: Path, *numbers: int) -> Path:
    """A folder with copies of some of the pipeline's files."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        shutil.copy(Path(config.source.tables["people"].path, f"{number}.csv"), folder)
    return folder


def test_every_row_is_predicted_once_or_refused_with_its_reason(config: Config, good: tuple[str, str], tmp_path: Path) -> None:
    inputs, output = raw(config, tmp_path / "in", 0, 1), tmp_path / "out"
    result = api.predict(config, good[1], str(output), [str(inputs)])
    assert result.rows_in == 2 * ROWS // 3 == result.rows_out + sum(result.refused.values())
    assert set(result.refused) == {"plausible age"}
    predictions = api.open_predictions(str(output)).to_table().to_pandas().set_index("id").sort_index()
    columns = ["id", "age", "height", "city", "job", "rich"]
    rows = pd.concat([pd.read_csv(file, names=columns, keep_default_na=False) for file in sorted(inputs.iterdir())])
    rows["height"] = pd.to_numeric(rows["height"])
    expected = api.load_model(config, good[1]).predict(rows.drop(columns="rich")).set_axis(rows["id"]).sort_index()
    expected = expected[expected["refused"].isna()]
    assert predictions.index.tolist() == expected.index.tolist()
    assert predictions["prediction"].tolist() == expected["prediction"].tolist()
    assert (predictions["probability_true"] - expected["probability_true"]).abs().max() < 1e-7
    assert list(predictions.columns) == [*columns[1:], "prediction", "probability_false", "probability_true"]
    refused = pa.concat_tables(pq.read_table(output / file) for file in result.quarantine).to_pylist()
    assert {row["reason"] for row in refused} == {"plausible age"}
    assert all(json.loads(row["record"])["age"] == 130 for row in refused)


@pytest.mark.full
def test_the_same_input_is_up_to_date_and_new_files_alone_are_predicted(config: Config, good: tuple[str, str], tmp_path: Path) -> None:
    inputs, output = raw(config, tmp_path / "in", 0), str(tmp_path / "out")

    def predict() -> Any:
        return api.predict(config, good[1], output, [f"people={inputs}"], ["id"])

    first = predict()
    assert predict().attempt == first.attempt
    raw(config, inputs, 1)
    second = predict()
    assert second.continues == first.snapshot and first.files.items() < second.files.items()
    assert second.rows_in == 2 * first.rows_in
    ids = api.open_predictions(output).to_table()["id"].to_pylist()
    assert len(ids) == len(set(ids)) == second.rows_out


@pytest.mark.full
def test_an_altered_file_and_another_column_are_predicted_anew(config: Config, good: tuple[str, str], tmp_path: Path) -> None:
    inputs, output = raw(config, tmp_path / "in", 0), str(tmp_path / "out")

    def predict(*keep: str) -> Any:
        return api.predict(config, good[1], output, [f"people={inputs}"], list(keep))

    first = predict("id")
    raw(config, inputs, 1)
    (inputs / "0.csv").write_text("".join((inputs / "0.csv").read_text().splitlines(keepends=True)[:500]))
    second = predict("id")
    assert not second.continues and second.rows_in == 500 + ROWS // 3
    assert api.open_predictions(f"{output}/{first.snapshot}").count_rows() == first.rows_out
    assert not predict("id", "city").continues


COLUMNS = ["id", "age", "height", "city", "job", "rich"]


def rows_without_label(config: Config, number: int) -> pd.DataFrame:
    """A file of the pipeline without the label, as pandas reads it: integers are int64."""
    rows = pd.read_csv(Path(config.source.tables["people"].path, f"{number}.csv"), names=COLUMNS, keep_default_na=False)
    return rows.assign(height=pd.to_numeric(rows["height"])).drop(columns="rich")


def read_predictions(result: Any, output: Path, columns: Sequence[str] = ("prediction", "probability_true")) -> pd.DataFrame:
    return api.open_predictions(f"{output}/{result.snapshot}").to_table().to_pandas().set_index("id").sort_index()[list(columns)]


@pytest.mark.full
@pytest.mark.parametrize("takes", ["rows", "query"])
def test_rows_without_the_label_are_predicted_from_csv_and_from_parquet_of_pandas(
    config: Config, good: tuple[str, str], tmp_path: Path, takes: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the model takes rows of the table or the columns of its query, and although the table is of CSV, with int for int64. The
    column of files is there in either format."""
    caplog.set_level(logging.INFO, "pipelines")
    uri = good[1] if takes == "rows" else finished_run(config, untrained_weights(config, seed=1), takes_query=True)[1]
    table = config.source.tables["people"].model_copy(update={"file_column": "file"})
    config = config.model_copy(update={"source": config.source.model_copy(update={"tables": {"people": table}})})
    labelled = api.predict(config, uri, str(tmp_path / "out"), [str(raw(config, tmp_path / "in", 0))])
    expected = read_predictions(labelled, tmp_path / "out")
    rows = rows_without_label(config, 0)
    (tmp_path / "short").mkdir()
    rows.to_csv(tmp_path / "short/rows.csv", header=False, index=False)
    result = api.predict(config, uri, str(tmp_path / "out"), [str(tmp_path / "short")])
    assert (result.rows_in, result.refused) == (labelled.rows_in, labelled.refused)
    pd.testing.assert_frame_equal(read_predictions(result, tmp_path / "out"), expected)
    assert set(read_predictions(result, tmp_path / "out", ["file"])["file"]) == {"rows.csv"}

    far = pd.DataFrame({"id": [2**40, 999_999], "age": [40, 3_000_000_000], "height": 1.7, "city": "Ulm", "job": "job 1"})
    pd.concat([rows, far]).to_parquet(tmp_path / "rows.parquet")
    result = api.predict(config, uri, str(tmp_path / "out"), [str(tmp_path / "rows.parquet")])
    assert "rows.parquet is Parquet, and is read as that, not as csv" in caplog.text
    assert result.rows_in == labelled.rows_in + 2 == result.rows_out + sum(result.refused.values())
    faults = {reason.removeprefix("people: ") for reason in result.refused if reason not in labelled.refused}
    assert faults == {f"the values of column {name} cannot be cast to int32" for name in ("id", "age")}
    predictions = read_predictions(result, tmp_path / "out", ["age", "file", *expected.columns])
    assert set(predictions["file"]) == {"rows.parquet"}
    pd.testing.assert_frame_equal(predictions[list(expected.columns)], expected, check_index_type=False)  # id is kept as in the file
    assert "rich" not in pq.read_schema(tmp_path / "out" / next(iter(result.files))).names
    refused = pa.concat_tables(pq.read_table(tmp_path / "out" / file) for file in result.quarantine).to_pylist()
    assert {json.loads(row["record"])["id"] for row in refused if "cannot be cast" in row["reason"]} == {2**40, 999_999}
    if takes == "query":  # with the column, in the type of the schema, they have been predicted above
        rows.drop(columns="age").to_parquet(tmp_path / "rows.parquet")
        with pytest.raises(ConfigError, match=r"has no column age, which source.query needs for features or .*; add it to the input"):
            api.predict(config, uri, str(tmp_path / "out"), [str(tmp_path / "rows.parquet")])
        rows.assign(age="old").to_parquet(tmp_path / "rows.parquet")
        with pytest.raises(ConfigError, match="have age as string, not int32, as its schema says; change the schema or the files"):
            api.predict(config, uri, str(tmp_path / "out"), [str(tmp_path / "rows.parquet")])


@pytest.mark.full
def test_a_file_of_another_format_than_its_table_is_named(config: Config, good: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "mixed").mkdir()
    rows_without_label(config, 0).to_parquet(tmp_path / "mixed/b.parquet")
    raw(config, tmp_path / "mixed", 1)
    (tmp_path / "book.csv").write_bytes(b"PK\x03\x04 and so on")
    table = config.source.tables["people"].model_copy(update={"format": "parquet", "ddl": ""})
    other = config.model_copy(update={"source": config.source.model_copy(update={"tables": {"people": table}})})
    for settings, path, message in (
        (config, "mixed", "b.parquet is Parquet and .*1.csv is not; predict them one after the other"),
        (config, "book.csv", "book.csv is a file of ZIP or Excel; write it as csv, json or parquet"),
        (other, "mixed/1.csv", "1.csv is not Parquet, the format of source.tables.people; for text, set --source.tables.people.format csv"),
    ):
        with pytest.raises(SourceError, match=message):
            api.predict(settings, good[1], str(tmp_path / "out"), [str(tmp_path / path)])


@pytest.mark.parametrize(
    ("settings", "options", "error", "message"),
    [
        ({"name": "others"}, {}, ConfigError, "is a model of the pipeline people, and the config is others"),
        ({}, {"model": "models:/people@nobody"}, TrackingError, "model models:/people@nobody cannot be read from sqlite"),
        ({}, {"keep": ["nothing"]}, ConfigError, "--keep nothing: source.tables.people gives no such column; it gives id, age"),
        ({}, {"inputs": ["/nowhere"]}, SourceError, "/nowhere: no such file"),
        ({"schema": "id int, age int, height double, job string, rich boolean"}, {}, ConfigError, r"no column city \(string\)"),
        (
            {"schema": "id int, age string, height double, city string, job string, rich boolean"},
            {},
            ConfigError,
            "age as string, not int32",
        ),
        pytest.param({"options": {"sep": ";"}}, {}, QualityError, "1,000 of 1,000 rows were refused", marks=pytest.mark.full),
    ],
)
def test_bad_input_is_one_clear_answer_and_leaves_nothing(
    config: Config,
    good: tuple[str, str],
    processes: SharedProcesses,
    tmp_path: Path,
    settings: dict[str, Any],
    options: dict[str, Any],
    error: type[LockstepError],
    message: str,
) -> None:
    table = config.source.tables["people"]
    renamed = {"ddl": settings["schema"]} if "schema" in settings else {name: settings[name] for name in settings if name == "options"}
    tables = {"people": table.model_copy(update=renamed)}
    other = config.model_copy(
        update={"name": settings.get("name", "people"), "source": config.source.model_copy(update={"tables": tables})}
    )
    inputs = options.get("inputs", [str(raw(config, tmp_path / "in", 0))])
    with processes.within(fetched_model), pytest.raises(error, match=message):
        api.predict(other, options.get("model", good[1]), str(tmp_path / "out"), inputs, options.get("keep", ()))
    assert not [file for file in (tmp_path / "out").rglob("*") if file.is_file()]


@pytest.mark.full
def test_a_column_of_the_name_of_a_prediction_is_not_kept(config: Config, good: tuple[str, str], tmp_path: Path) -> None:
    schema = "id int, age int, height double, city string, job string, prediction boolean"
    tables = {"people": config.source.tables["people"].model_copy(update={"ddl": schema})}
    other = config.model_copy(update={"source": config.source.model_copy(update={"tables": tables})})
    inputs = [str(raw(config, tmp_path / "in", 0))]
    with pytest.raises(ConfigError, match="--keep: prediction is also a column of the predictions; name the columns to keep, without it"):
        api.predict(other, good[1], str(tmp_path / "out"), inputs)
    assert api.predict(other, good[1], str(tmp_path / "out"), inputs, ["id"]).rows_out


@pytest.mark.full
def test_a_champion_is_replaced_by_a_model_that_is_no_worse_and_comes_back(config: Config, good: tuple[str, str]) -> None:
    gates = registry_config(config, slices=("city",), slice_bound=1e4, latency_ms=60_000.0, size_mb=100.0, at_most={"loss": 1e4})
    client = MlflowClient(config.tracking.uri)
    first = api.promote(gates, good[0])
    assert first.version == "1"
    assert first.text.endswith(
        "held: bounds, size, lineage, commit, sources, latency, skew, slices; "
        "not checked: champion (there is no other champion to compare with)"
    )
    assert api.promote(gates, good[0]).text.endswith("already, as version 1")
    worse, _ = finished_run(config, untrained_weights(config, seed=1, times=4.0))
    with pytest.raises(RefusedError, match=r"loss below the champion's, [\d.]+ and [\d.]+ on the same rows, at confidence 0.95 is -"):
        api.promote(registry_config(config), worse)
    assert str(client.get_model_version_by_alias("people", "champion").version) == "1"
    assert client.get_run(worse).data.tags["lockstep.decision"].startswith("refused: ")
    (artifact,) = client.list_artifacts(worse, "registry")
    recorded = json.loads(Path(mlflow.artifacts.download_artifacts(run_id=worse, artifact_path=artifact.path)).read_text())
    assert [gate["name"] for gate in recorded["gates"] if not gate["holds"]] == [recorded["gates"][-1]["name"]]

    equal, _ = finished_run(config, untrained_weights(config, seed=1))
    assert api.promote(registry_config(config), equal).version == "2"
    decision = api.rollback(config)
    assert decision.text.startswith(f"run {good[0]}, version 1 of people, is the champion again as version 3, after version 2")
    back = client.get_model_version_by_alias("people", "champion")
    assert (str(back.version), back.run_id, back.tags["lockstep.rollback_of"]) == ("3", good[0], "2")
    with pytest.raises(TrackingError, match="no champion before version 3"):
        api.rollback(config)


@pytest.mark.full
def test_a_champion_set_by_hand_has_passed_no_gate(config: Config, good: tuple[str, str]) -> None:
    """So a model is compared with the last champion that did, and a rollback returns to that one."""
    by_name, client = registry_config(config, model="by-hand"), MlflowClient(config.tracking.uri)
    assert api.promote(by_name, good[0]).version == "1"
    worse, worse_uri = finished_run(config, untrained_weights(config, seed=1, times=4.0))
    by_hand = client.create_model_version("by-hand", worse_uri, worse, model_id=worse_uri.removeprefix("models:/"))
    client.set_registered_model_alias("by-hand", "champion", by_hand.version)
    with pytest.raises(RefusedError, match="loss below the champion's"):
        api.promote(by_name, worse)
    client.delete_registered_model_alias("by-hand", "champion")
    with pytest.raises(RefusedError, match="loss below the champion's"):
        api.promote(by_name, worse)
    client.set_registered_model_alias("by-hand", "champion", by_hand.version)
    assert api.rollback(by_name).text.startswith(
        f"run {good[0]}, version 1 of by-hand, is the champion again as version 3, after version 2"
    )


@pytest.mark.full
def test_what_was_not_checked_is_said_and_may_be_required(config: Config) -> None:
    run_id, _ = finished_run(config, untrained_weights(config, seed=3))
    first = "sources (there is no other champion to compare with), skew (there is no other champion to compare with)"
    with pytest.raises(RefusedError, match=r"skew is required and not checked \(there is no other champion to compare with") as refused:
        api.promote(registry_config(config, model="unchecked", required=("skew",)), run_id)
    assert refused.value.exit_code == 8
    decision = api.promote(registry_config(config, model="unchecked"), run_id)
    tag = MlflowClient(config.tracking.uri).get_run(run_id).data.tags["lockstep.decision"]
    assert "held: lineage, commit; not checked: " in decision.text and first in decision.text and tag == decision.text
    other, _ = finished_run(config, untrained_weights(config, seed=4))
    decision = api.promote(registry_config(config, model="unchecked", compare=False), other)
    assert "skew (registry.compare is false), champion (registry.compare is false)" in decision.text


@pytest.mark.full
@pytest.mark.parametrize(
    ("registry", "commit", "message"),
    [
        ({"at_least": {"auc": 0.99}}, "a" * 40, r"test/auc is 0\.\d+, and at least 0.99 is wanted"),
        ({"at_least": {"hits": 0.5}}, "a" * 40, "test/hits is missing, and at least 0.5 is wanted"),
        ({"size_mb": 0.001}, "a" * 40, r"the size is [\d.]+, and at most 0.001 MB is wanted"),
        ({}, f"{'a' * 40}-dirty", "the commit of the code is a+-dirty, and a commit without -dirty is wanted"),
    ],
)
def test_a_refusal_names_the_gate_with_both_numbers(config: Config, registry: dict[str, Any], commit: str, message: str) -> None:
    run_id, _ = finished_run(config, untrained_weights(config, seed=2), commit)
    with pytest.raises(RefusedError, match=message) as refused:
        api.promote(registry_config(config, **registry, slices=("city",), slice_bound=0.1, model="refusals"), run_id)
    assert "slices (another gate failed before)" in str(refused.value)
    assert "latency (registry.latency_ms is not set)" in str(refused.value)
    assert not MlflowClient(config.tracking.uri).search_registered_models("name = 'refusals'")


@pytest.mark.full
def test_a_slice_has_its_own_bound(config: Config, good: tuple[str, str]) -> None:
    with pytest.raises(RefusedError, match=r"loss of the \d+ rows with city Bonn is [\d.]+, and at most 0.1 is wanted"):
        api.promote(registry_config(config, slices=("city",), slice_bound=0.1, slice_rows=20, model="slices"), good[0])
