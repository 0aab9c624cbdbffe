"""Metrics of weighted rows and their comparison; the alias, when several promote at once; models in processes of their own."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from filed import Served, file_model
from hypothesis import given
from hypothesis import strategies as st
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from shared_models import SharedProcesses, shared_processes

from pipelines.config.serving import Registry
from pipelines.errors import ConfigError, CorruptError, DatasetError, SourceError, TrackingError
from pipelines.serving.model.column_casts import fitting_rows, misfits
from pipelines.serving.model.logged_model import download_model
from pipelines.serving.model.predictor import Predictor
from pipelines.serving.model.process import ModelProcess
from pipelines.serving.registry import alias, gates
from pipelines.serving.registry.champion_comparison import ComparisonTarget, bootstrap_comparison, class_metric, quantity_metric
from pipelines.serving.registry.gates import (
    Judgement,
    PredictedRows,
    _is_no_worse,
    _judge_slices,
    _reproduces_logged_metric,
    at_least,
    at_most,
    bounds,
    judge_predictions,
    skip_reasons,
)
from pipelines.serving.registry.promote import rollback


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.1, 0.2, 0.5, 0.9]), st.integers(0, 3)), min_size=2, max_size=30))
def test_the_auc_is_the_share_of_pairs_in_the_right_order(rows: list[tuple[bool, float, int]]) -> None:
    truth = np.array([positive for positive, _, _ in rows], np.int64)
    scores, weights = np.array([score for _, score, _ in rows]), np.array([float(weight) for _, _, weight in rows])
    pairs = [
        (weight * other_weight, 1.0 if score > other else 0.5 if score == other else 0.0)
        for positive, score, weight in rows
        for other_positive, other, other_weight in rows
        if positive and not other_positive
    ]
    total = sum(weight for weight, _ in pairs)
    auc = class_metric("auc", truth, np.stack([1 - scores, scores], axis=1))(weights)
    assert np.isnan(auc) if not total else auc == pytest.approx(sum(weight * right for weight, right in pairs) / total)


def test_metrics_judge_predictions() -> None:
    truth, probabilities = np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]])
    ones = np.ones(3)
    decisions = pa.table({"prediction": ["no", "no", "yes"], "probability_no": probabilities[:, 0], "probability_yes": probabilities[:, 1]})
    accuracy = ComparisonTarget("accuracy", "y", None, ("no", "yes")).metric_by_weights(truth, decisions)  # type: ignore[arg-type]
    assert accuracy(ones) == pytest.approx(2 / 3), "of what is predicted, by whichever threshold"
    assert accuracy(np.array([1.0, 0.0, 1.0])) == 1
    assert class_metric("loss", truth, probabilities)(ones) == pytest.approx(-np.log([0.9, 0.6, 0.2]).mean())
    values, predicted = np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 2.0])
    assert [quantity_metric(name, values, predicted)(ones) for name in ("mae", "mse", "rmse")] == pytest.approx([1, 5 / 3, (5 / 3) ** 0.5])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_metric_of_a_quantity_is_reproduced_in_its_own_units(scale: float) -> None:
    truth = scale * np.array([1.0, 2.0, 4.0])
    predictions = PredictedRows(pa.table({"y": truth}), truth, pa.table({"prediction": truth + scale * np.array([0.1, -0.2, 0.3])}))
    target = ComparisonTarget("rmse", "y", None, ())  # type: ignore[arg-type]
    value = target.metric_by_weights(truth, predictions.table)(np.ones(3))
    assert _reproduces_logged_metric(target, predictions, value * 1.0005).holds
    assert not _reproduces_logged_metric(target, predictions, value * 0.2).holds


def test_a_bootstrap_tells_a_worse_model_from_an_equal_one() -> None:
    random = np.random.default_rng(0)
    truth = random.integers(0, 2, 2_000)

    def model(noise: float) -> np.ndarray:
        score = 1 / (1 + np.exp(-(truth - 0.5 + noise * random.normal(size=len(truth)))))
        return np.stack([1 - score, score], axis=1)

    good, bad = class_metric("auc", truth, model(0.5)), class_metric("auc", truth, model(2.0))
    same = bootstrap_comparison(good, good, True, len(truth), 0.95, 100, seed=1)
    assert (same.lower, same.candidate) == (0, same.champion)
    worse = bootstrap_comparison(bad, good, True, len(truth), 0.95, 100, seed=1)
    assert worse.lower < worse.candidate - worse.champion < -0.1
    assert worse == bootstrap_comparison(bad, good, True, len(truth), 0.95, 100, seed=1)
    assert bootstrap_comparison(good, bad, True, len(truth), 0.95, 100, seed=1).lower > 0.1


def test_bounds_name_what_was_found_and_what_is_wanted() -> None:
    gates = bounds(Registry(at_least={"auc": 0.9}, at_most={"loss": 0.3, "rmse": 1.0}), {"test/auc": 0.91, "test/loss": 0.4})
    assert [gate.holds for gate in gates] == [True, False, False]
    assert [str(gate) for gate in gates[1:]] == [
        "test/loss is 0.4, and at most 0.3 is wanted",
        "test/rmse is missing, and at most 1 is wanted",
    ]
    assert [at_least("auc", value, 0.9).holds for value in (0.91, 0.9, 0.89)] == [True, True, False]
    assert [at_most("loss", value, 0.3).holds for value in (0.29, 0.3, 0.31)] == [True, True, False]
    assert not at_least("auc", float("nan"), 0.5).holds


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return file_model(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def processes() -> Iterator[SharedProcesses]:
    with shared_processes() as processes:
        yield processes


@pytest.fixture(scope="module")
def folder(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return download_model(served.config.tracking.uri, served.uri, tmp_path_factory.mktemp("folder"))


@pytest.fixture
def model(folder: Path, processes: SharedProcesses) -> Iterator[Path]:
    """The model's folder, whose process is the same for all tests."""
    with processes.within(gates):
        yield folder


def test_a_model_that_refuses_every_row_does_not_pass(served: Served, model: Path) -> None:
    target = ComparisonTarget("auc", "rich", served.manifest, ("false", "true"))
    rows = served.raw.set_column(served.raw.column_names.index("x"), "x", pa.nulls(len(served.raw), pa.float32()))
    judgement = judge_predictions(Registry(), target, rows, 0.5, model, model)
    assert [str(gate) for gate in judgement.conditions] == [
        "the number of test rows that the model predicts is 0, and at least 1 is wanted"
    ]
    assert judgement.numbers == {"rows": 0} and not judgement.conditions[0].holds
    assert judgement.not_checked == {
        "champion": "the model predicts no test row",
        "slices": "registry.slices is empty",
        "latency": "registry.latency_ms is not set",
    }


def test_a_slice_whose_metric_is_not_defined_is_said_not_to_be_checked(served: Served, model: Path) -> None:
    """The AUC of rows of one class. What is recorded is JSON."""
    settings = Registry(slices=("member",), slice_bound=0.5, slice_rows=2)
    target = ComparisonTarget("auc", "rich", served.manifest, ("false", "true"))
    judgement = judge_predictions(settings, target, served.raw.filter(pc.field("rich")), None, model, None, {"skew": "there is none"})
    assert judgement.conditions == []
    assert judgement.not_checked["slices"].startswith("auc of member ") and judgement.not_checked["skew"] == "there is none"
    assert json.loads(json.dumps(judgement.record(), allow_nan=False))["not_checked"] == judgement.not_checked


def test_a_gate_that_was_checked_on_some_slices_only_is_not_checked(served: Served) -> None:
    """Of those slices that have both classes, each holds; `required` refuses the model all the same."""
    target = ComparisonTarget("auc", "rich", served.manifest, ("false", "true"))
    word = pc.field("word")
    rows = served.raw.filter(word.is_null() | (word != "ant") | pc.field("rich"))
    predicted = pa.Table.from_pandas(Predictor(served.config.task, served.manifest, served.weights).predict(rows))
    judgement, settings = Judgement(), Registry(slices=("word",), slice_bound=0.0, slice_rows=2)
    _judge_slices(settings, target, PredictedRows(rows, target.truth(rows)[0], predicted), judgement)
    assert [gate.name for gate in judgement.conditions if gate.gate == "slices"]
    assert judgement.not_checked["slices"] == "auc of word ant is not defined"
    assert "slices" not in judgement.passed_gates and "slices (auc of word ant is not defined)" in str(judgement)
    assert judgement.failures(()) == []
    assert judgement.failures(("slices",)) == ["slices is required and not checked (auc of word ant is not defined)"]


def test_a_better_model_than_the_champion_is_no_worse_and_a_worse_one_is(served: Served, model: Path) -> None:
    target = ComparisonTarget("auc", "rich", served.manifest, ("false", "true"))
    truth, _ = target.truth(served.raw)
    holds, differences = [], []
    for probability in (truth, 1 - truth):
        predicted = pa.table({"probability_false": 1.0 - probability, "probability_true": probability.astype(float)})
        numbers: dict[str, Any] = {}
        gate = _is_no_worse(Registry(), target, PredictedRows(served.raw, truth, predicted), model, numbers)
        holds.append(gate.holds)
        differences.append(numbers["comparison"]["candidate"] - numbers["comparison"]["champion"])
    assert holds == [True, False] and differences[0] > 0.1 and differences[1] < -0.1


@pytest.mark.full
def test_a_champion_that_cannot_predict_the_rows_is_said_and_may_be_left_out(served: Served, tmp_path: Path) -> None:
    """One that lacks columns of the rows, of which a few are named, and one that refuses all rows."""
    champion = download_model(served.config.tracking.uri, served.uri, tmp_path)
    target = ComparisonTarget("auc", "rich", served.manifest, ("false", "true"))
    unplaced = served.raw.set_column(served.raw.column_names.index("x"), "x", pa.nulls(len(served.raw), pa.float32()))
    for rows, error, message in (
        (served.raw.select(["age", "rich"]), ConfigError, r"the champion cannot predict the rows .* and 7 more; set registry\.compare to"),
        (unplaced, DatasetError, r"the champion refuses all of the test rows, so the models cannot be compared; set registry\.compare to"),
    ):
        with pytest.raises(error, match=message):
            _is_no_worse(Registry(), target, PredictedRows(rows, target.truth(rows)[0], pa.table({})), champion, {})
    judgement = judge_predictions(Registry(compare=False), target, served.raw, None, champion, champion)
    assert judgement.not_checked["champion"] == "registry.compare is false"


def test_a_judgement_says_which_gates_are_held_which_failed_and_which_are_not_checked() -> None:
    judgement = Judgement()
    judgement.add("bounds", bounds(Registry(at_least={"auc": 0.9}), {"test/auc": 0.91}), "there are none")
    judgement.add("size", [at_most("the size", 3.0, 2.0, " MB")], "there is none")
    judgement.add("champion", [], "there is no other champion to compare with")
    assert str(judgement) == "held: bounds; not checked: champion (there is no other champion to compare with)"
    assert judgement.failures(()) == ["the size is 3, and at most 2 MB is wanted"]
    assert judgement.failures(("champion", "bounds"))[1:] == [
        "champion is required and not checked (there is no other champion to compare with)"
    ]
    assert (judgement.record()["held"], judgement.record()["failed"]) == (["bounds"], ["size"])


def test_a_rollback_goes_by_what_was_promoted_where_the_alias_was_moved_by_hand(served: Served) -> None:
    uri = served.config.tracking.uri
    client = MlflowClient(uri)

    def champion_before() -> str | None:
        version = alias.champion_before(client, uri, "moved", alias.champion(client, uri, "moved"))
        return version and str(version.version)

    promote(served, "moved")
    assert champion_before() is None
    promote(served, "moved")
    assert champion_before() == "1"
    client.create_model_version("moved", served.uri, served.run_id, model_id=served.uri.removeprefix("models:/"))
    for version in ("3", "1"):
        client.set_registered_model_alias("moved", "champion", version)
        assert champion_before() == "2"
    client.delete_registered_model_alias("moved", "champion")
    assert champion_before() == "2"
    promote(served, "moved")  # after an alias that was removed too
    assert champion_before() == "2"


def test_a_rollback_to_a_version_that_was_deleted_is_refused_by_its_number(served: Served) -> None:
    """It does not fall back to the next lower one."""
    uri = served.config.tracking.uri
    client = MlflowClient(uri)
    assert [promote(served, "erased") for _ in range(3)] == ["1", "2", "3"]
    client.delete_model_version("erased", "2")
    config = served.config.model_copy(update={"registry": Registry(model="erased")})
    with pytest.raises(TrackingError, match="version 2 of erased, the champion before version 3, is deleted from the registry"):
        rollback(config)
    assert str(client.get_model_version_by_alias("erased", "champion").version) == "3"
    assert promote(served, "erased") == "4"  # the remedy


def test_a_rollback_to_a_run_that_was_deleted_leaves_the_alias(served: Served) -> None:
    uri = served.config.tracking.uri
    client = MlflowClient(uri)
    assert [promote(served, "without a run") for _ in range(2)] == ["1", "2"]
    config = served.config.model_copy(update={"registry": Registry(model="without a run")})
    client.delete_run(served.run_id)
    try:
        with pytest.raises(TrackingError, match=rf"run {served.run_id} is deleted in .*; restore it with .*mlflow runs restore --run-id"):
            rollback(config)
        assert [version.version for version in client.search_model_versions("name = 'without a run'")] == [2, 1]
    finally:
        client.restore_run(served.run_id)
    assert rollback(config).version == "3"


def test_a_rollback_to_a_run_that_is_gone_for_good_leaves_the_alias(served: Served) -> None:
    client = MlflowClient(uri := served.config.tracking.uri)
    deleted_run = client.create_run("0").info.run_id
    name = "gone"
    first = alias.promote_model(client, uri, name, served.uri, deleted_run, None, {})
    alias.promote_model(client, uri, name, served.uri, served.run_id, first, {})
    client.delete_run(deleted_run)
    client._tracking_client.store._hard_delete_run(deleted_run)  # as `mlflow gc` does
    config = served.config.model_copy(update={"registry": Registry(model=name)})
    with pytest.raises(TrackingError, match=rf"version 1 of gone does not become the champion again: its run {deleted_run} is gone from"):
        rollback(config)
    assert str(client.get_model_version_by_alias(name, "champion").version) == "2"
    assert promote(served, name) == "3"  # its run is gone for good, and another is promoted


def test_a_champion_whose_alias_was_moved_or_removed_by_hand_is_still_the_rival(served: Served) -> None:
    uri = served.config.tracking.uri
    client = MlflowClient(uri)

    def rival_version(run_id: str) -> str | None:
        rival = alias.rival(alias.champion(client, uri, "rivals"), alias.promotion_history(client, uri, "rivals"), run_id)
        return rival and str(rival.version)

    assert rival_version("another run") is None
    promote(served, "rivals")
    assert (rival_version("another run"), rival_version(served.run_id)) == ("1", None)
    client.delete_registered_model_alias("rivals", "champion")
    assert (rival_version("another run"), rival_version(served.run_id)) == ("1", None)


def test_a_gate_that_is_not_set_does_not_wait_for_one_that_failed() -> None:
    assert skip_reasons(Registry(), "there is none") == {
        "champion": "there is none",
        "slices": "registry.slices is empty",
        "latency": "registry.latency_ms is not set",
    }
    assert skip_reasons(Registry(slices=("city",), latency_ms=5.0), None) == {}


def promote(served: Served, name: str) -> str:
    uri = served.config.tracking.uri
    client = MlflowClient(uri)
    present = alias.champion(client, uri, name)
    tags = alias.tags_after(present, alias.promotion_history(client, uri, name))
    return str(alias.promote_model(client, uri, name, served.uri, served.run_id, present, tags).version)


def test_of_promotions_at_once_one_wins_and_the_others_are_told(served: Served) -> None:
    uri = served.config.tracking.uri
    client = MlflowClient(uri)

    def answer(_: int) -> str:
        try:
            return str(alias.promote_model(client, uri, "race", served.uri, served.run_id, None, {}).version)
        except TrackingError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(answer, range(4)))
    (winner,) = [text for text in answers if text.isdecimal()]
    assert str(client.get_model_version_by_alias("race", "champion").version) == winner
    assert all("of race does not become the champion" in text for text in answers if text != winner)
    states = [version.tags[alias.STATE] for version in client.search_model_versions("name = 'race'")]
    assert sorted(states) == ["promoted", "withdrawn", "withdrawn", "withdrawn"]


def test_a_champion_that_was_replaced_meanwhile_is_named(served: Served) -> None:
    uri = served.config.tracking.uri
    client = MlflowClient(uri)
    assert promote(served, "replaced") == "1"
    with pytest.raises(TrackingError, match="the champion is now version 1, not none; run again to be compared with it"):
        alias.promote_model(client, uri, "replaced", served.uri, served.run_id, None, {})
    assert promote(served, "replaced") == "3"
    assert client.get_model_version("replaced", "3").tags[alias.PREVIOUS] == "1"


def test_a_champion_that_is_overwritten_at_once_is_named(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    client, set_alias = MlflowClient(served.config.tracking.uri), MlflowClient.set_registered_model_alias
    assert promote(served, "overwritten") == "1"
    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "set_registered_model_alias", lambda client, name, key, _: set_alias(client, name, key, "1"))
        with pytest.raises(TrackingError, match="version 2 of overwritten was the champion, and version 1 was set in its place"):
            promote(served, "overwritten")
    assert client.get_model_version("overwritten", "2").tags[alias.STATE] == "withdrawn"
    assert promote(served, "overwritten") == "3"


def test_where_nothing_can_be_rolled_back_a_run_can_be_promoted(served: Served) -> None:
    config = served.config.model_copy(update={"registry": Registry(model="only_one")})
    assert promote(served, "only_one") == "1"
    with pytest.raises(TrackingError, match="before version 1, so nothing to roll back to; promote a run with --run instead"):
        rollback(config)
    assert promote(served, "only_one") == "2"


def test_a_promotion_that_was_broken_off_is_finished_by_the_next(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise MlflowException("Connection refused")

    client = MlflowClient(served.config.tracking.uri)
    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "set_registered_model_alias", away)
        with pytest.raises(TrackingError, match=r"version 1 of away is registered, but .*Connection refused; run the same command again"):
            promote(served, "away")
    with pytest.raises(TrackingError, match="is being promoted as version 1"):  # its process is alive: this one
        promote(served, "away")
    client.set_model_version_tag("away", "1", alias.HEARTBEAT, '{"time": 0, "host": "nowhere", "process": 1}')
    assert promote(served, "away") == "3"
    assert [int(version.version) for version in client.search_model_versions("name = 'away'")] == [3, 2]


@pytest.mark.full
def test_a_model_in_a_process_of_its_own_predicts_as_in_this_one(served: Served, tmp_path: Path) -> None:
    folder = download_model(served.config.tracking.uri, served.uri, str(tmp_path))
    rows = served.raw.slice(0, 100)
    expected = Predictor(served.config.task, served.manifest, served.weights).predict(rows)
    with ModelProcess(folder) as model:
        (batch,) = rows.combine_chunks().to_batches()
        predictions = model.predict(batch).to_pandas()
        assert predictions["prediction"].tolist() == expected["prediction"].tolist()
        assert (predictions["probability_true"] - expected["probability_true"]).abs().max() < 1e-7
        assert len(model.predict(batch.slice(0, 0))) == 0
        with pytest.raises(SourceError, match=r"the rows have no column age \(double\), which the model takes"):
            model.predict(batch.drop_columns(["age"]))
        assert misfits(model.inputs, rows.schema) == []
        wide = batch.set_column(batch.schema.names.index("children"), "children", batch.column("children").cast(pa.int64()))
        assert model.predict(wide).equals(model.predict(batch))
        children = pa.array([2**31, 1.5, float("nan"), None, 2.0], pa.float64())
        refusals = model.predict(batch.slice(0, 5).set_column(batch.schema.names.index("children"), "children", children))
        reasons = refusals["refused"].to_pylist()
        assert [str(reason).partition(":")[0] for reason in reasons[:3]] == ["the values of column children cannot be cast to int32"] * 3
        assert refusals["prediction"].to_pylist()[:3] == [None] * 3 and reasons[4] is None and refusals["prediction"][4].is_valid
        assert model.about["pipeline"] == "served"
        model._process.kill()
        with pytest.raises(DatasetError, match=r"the process of the model ended with -9: .*; run again"):
            model.predict(batch)
    with ModelProcess(folder) as model:
        assert len(model.predict(batch)) == len(batch)
    (folder / "artifacts/manifest.json").write_bytes(b"{}")
    with pytest.raises(CorruptError, match=r"manifest.json has SHA-256 44136fa355b3…"):
        ModelProcess(folder)


@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        (pa.int8(), []),
        (pa.int64(), []),
        (pa.uint64(), []),
        (pa.float64(), []),
        (pa.string(), ["n as string, not int32"]),
        (pa.bool_(), ["n as bool, not int32"]),
        (pa.timestamp("us"), ["n as timestamp[us], not int32"]),
    ],
)
def test_a_number_of_another_type_will_do(kind: pa.DataType, faults: list[str]) -> None:
    assert misfits(pa.schema({"n": pa.int32()}), pa.schema({"n": kind})) == faults


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.float64(), [10**30, 2**53 + 1, None], [1e30, 2.0**53, None]),
        (pa.float64(), [2**63, 1.5], [2.0**63, 1.5]),
        (pa.list_(pa.float64()), [[10**30, 1.5], [1]], [[1e30, 1.5], [1.0]]),
        (pa.float64(), [10**400, 1], [None, 1.0]),
        (pa.int64(), [10**30, 1], [None, 1]),
        (pa.decimal128(12, 2), [1e37, 1.234], [None, Decimal("1.23")]),
        (pa.decimal128(12, 2), [Decimal("1e37"), Decimal("9999999999.999")], [None, None]),
        (pa.decimal128(12, 2), [Decimal("-1.235"), Decimal("9999999999.99")], [Decimal("-1.24"), Decimal("9999999999.99")]),
        (pa.list_(pa.decimal128(12, 2)), [[1e37], [1.234]], [None, [Decimal("1.23")]]),
    ],
)
def test_a_number_that_the_models_type_lacks_is_refused_and_no_other(kind: pa.DataType, values: Any, expected: Any) -> None:
    for rows in ({"x": values}, pd.DataFrame({"x": pd.Series(values, dtype=object)})):
        table, reasons = fitting_rows(rows, pa.schema({"x": kind}))
        assert table["x"].to_pylist() == expected
        assert [reason is None for reason in reasons.to_pylist()] == [
            value is not None or raw is None for value, raw in zip(expected, values, strict=True)
        ]
