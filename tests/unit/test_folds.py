"""Folds of a cross-validation without Spark: what each training reads, its metrics, and the run that holds all."""

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import inf, isnan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.fs
import pytest
from config_remedies import VALUES
from hypothesis import given
from hypothesis import strategies as st
from mlflow import MlflowClient
from stores import new_store

from pipelines.config import Config, parse
from pipelines.config.dataset.dataset import ByFold
from pipelines.data.loader import Loader, Order, shard_range
from pipelines.data.versions.folds import count_folds, fold_splits, select_fold, select_row_groups, time_fold_splits, training_rows
from pipelines.data.versions.manifest import Folds
from pipelines.data.versions.plain import commit_arrays, identity_encoders
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import Version, read_column
from pipelines.errors import ConfigError, CorruptError, SourceError, TrackingError
from pipelines.etl.splits.fold_assignment import check_folds, describe_missing_folds
from pipelines.etl.splits.strata import Stratum, apportion
from pipelines.etl.summary import describe_folds
from pipelines.report.command import report_page
from pipelines.report.fold_metrics import fold_table, metrics_line, summarize_metrics
from pipelines.tracking.cross_validation_run import CROSS_VALIDATION, FOLD, file_metrics, open_cross_validation
from pipelines.tracking.parent_run import PARENT
from pipelines.tracking.tracked_run import KIND
from pipelines.tracking.training import open_training

FOLDS, ROWS = 4, (1_500, 900)
ORDER = Order(shards=4, global_batch=64, window=2, remainder="keep")


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Two parts of several row groups; two repeats, whose folds are any."""
    folder = tmp_path_factory.mktemp("version")
    columns = (
        TensorColumn(name="number", dtype="int64"),
        TensorColumn(name="wide", dtype="float32", shape=(300,)),
        TensorColumn(name="label", dtype="uint8", role="target", cardinality=2),
        *(TensorColumn(name=f"fold_{repeat}", dtype="uint8", role="carried") for repeat in (1, 2)),
    )
    numbers, random = np.arange(sum(ROWS)), np.random.default_rng(1)
    values = {
        "number": numbers,
        "wide": np.repeat(numbers[:, None], 300, 1).astype(np.float32),
        "label": (numbers % 2).astype(np.uint8),
        **{f"fold_{repeat}": random.integers(1, FOLDS + 1, len(numbers)).astype(np.uint8) for repeat in (1, 2)},
    }
    rows = {name: tuple(np.bincount(values[name])[1:].tolist()) for name in ("fold_1", "fold_2")}
    parts = [{name: array[start : start + count] for name, array in values.items()} for start, count in ((0, ROWS[0]), (ROWS[0], ROWS[1]))]
    return commit_arrays(str(folder), {"train": parts}, identity_encoders(columns), 2**18, folds=Folds(rows=rows))


def batch_numbers(version: Version, split: str, owned_shards: range | None = None, **settings: Any) -> list[np.ndarray]:
    """The numbers of the rows of each batch of an epoch."""
    return [batch["number"].numpy().copy() for batch in Loader(version, split, ORDER, owned_shards, **settings)]


@given(st.integers(3, 100), st.data())
def test_each_training_tests_one_fold_validates_on_the_next_and_trains_on_the_others(folds: int, data: st.DataObject) -> None:
    splits = fold_splits(folds, fold := data.draw(st.integers(1, folds)))
    assert splits["test"] == (fold,) and splits["validation"] == (fold % folds + 1,)
    assert sorted(number for numbers in splits.values() for number in numbers) == [*range(1, folds + 1)]


def test_folds_by_time_train_on_all_that_is_earlier_and_see_nothing_later(version: Version) -> None:
    by_time = Folds(rows={"fold_1": version.manifest.folds.rows["fold_1"]}, by_time=True)  # type: ignore[union-attr]
    version = replace(version, manifest=version.manifest.model_copy(update={"folds": by_time}))
    column = version.manifest.encoders["fold_1"].column
    folds = read_column(version, "train", column)
    assert by_time.trainings == FOLDS - 2
    for training in (1, 2):
        assert time_fold_splits(training) == {"train": (*range(1, training + 1),), "validation": (training + 1,), "test": (training + 2,)}
        selected = select_fold(version, training)
        for split, numbers in time_fold_splits(training).items():
            assert sorted(np.concatenate(batch_numbers(selected, split))) == np.flatnonzero(np.isin(folds, numbers)).tolist()
        assert training_rows(by_time, training) == selected.rows("train")


@pytest.mark.parametrize("cache_bytes", [0, 2**30])
def test_p2_each_row_is_once_in_a_training_and_once_tested_in_each_repeat(version: Version, cache_bytes: int) -> None:
    tested: list[np.ndarray] = []
    for training in range(1, 2 * FOLDS + 1):
        selected = select_fold(version, training)
        splits = {
            split: np.concatenate(batch_numbers(selected, split, cache_bytes=cache_bytes)) for split in ("train", "validation", "test")
        }
        assert sorted(np.concatenate([*splits.values()])) == [*range(sum(ROWS))]
        folds = read_column(version, "train", version.manifest.encoders[f"fold_{1 + (training > FOLDS)}"].column)
        assert {*folds[splits["test"]]} == {(training - 1) % FOLDS + 1} and {*folds[splits["validation"]]} == {training % FOLDS + 1}
        assert {name: summary.rows for name, summary in selected.manifest.splits.items()} == {name: len(splits[name]) for name in splits}
        assert training_rows(version.manifest.folds, training) == len(splits["train"])  # type: ignore[arg-type]
        assert selected.digest == version.digest and selected.manifest.folds and selected.manifest.folds.selected == training
        tested.append(splits["test"])
    for repeat in (0, 1):
        assert sorted(np.concatenate(tested[repeat * FOLDS : (repeat + 1) * FOLDS])) == [*range(sum(ROWS))]


@pytest.mark.parametrize("cache_bytes", [0, 2**30])
def test_p3_p4_the_rows_of_a_step_are_those_of_any_number_of_workers_and_after_a_resume(version: Version, cache_bytes: int) -> None:
    selected = select_fold(version, 3)
    alone = batch_numbers(selected, "train", cache_bytes=cache_bytes)
    for workers in (2, 3, 4):
        parts = [batch_numbers(selected, "train", shard_range(rank, workers, 4), cache_bytes=cache_bytes) for rank in range(workers)]
        for expected, batches in zip(alone, zip(*parts, strict=True), strict=True):
            assert np.array_equal(expected, np.concatenate(batches))
    resumed = Loader(selected, "train", ORDER, cache_bytes=cache_bytes)
    resumed.load_state_dict({"epoch": 0, "step": 5, "order_version": 1})
    for expected, batch in zip(alone[5:], resumed, strict=True):
        assert np.array_equal(expected, batch["number"].numpy())


def test_the_columns_of_folds_are_in_no_batch_and_wide_values_stay_with_their_row(version: Version) -> None:
    for batch in Loader(select_fold(version, 1), "validation", ORDER):
        assert {*batch} == {"number", "wide", "label"} and (batch["wide"] == batch["number"][:, None]).all()


def test_a_column_of_a_training_has_only_its_rows(version: Version) -> None:
    selected = select_fold(version, 2)
    numbers = read_column(selected, "test", selected.columns[0])
    assert sorted(numbers) == sorted(np.concatenate(batch_numbers(selected, "test")))


def test_rows_of_other_folds_than_when_the_version_was_opened_are_an_error(version: Version) -> None:
    selected = select_fold(version, 1)
    rows = {"test": selected.row_groups.select_split("test").rows}
    groups = select_row_groups(version.row_groups, "fold_1", {"test": (2,)}, rows)
    with pytest.raises(CorruptError, match=r"it has \d+ rows of folds \[2\], and \d+ when the version was opened"):
        batch_numbers(replace(selected, row_groups=groups), "test")


def test_p8_counts_of_folds_are_those_of_the_files_and_none_is_empty(version: Version) -> None:
    columns = [version.manifest.encoders[name].column for name in ("fold_1", "fold_2")]
    counts = count_folds(pyarrow.fs.LocalFileSystem(), version.root, version.row_groups, columns, FOLDS)
    assert counts == version.manifest.folds
    check_folds(counts, ByFold(folds=FOLDS, repeats=2))
    assert re.fullmatch(r"4 folds, 2 times, of 5\d\d to 6\d\d rows", describe_folds(counts))
    assert describe_folds(Folds(rows={"fold": (1, 2, 1_000)})) == "3 folds, of 1 to 1,000 rows"
    with pytest.raises(SourceError, match=r"folds is 5, but no row of 3 is in fold 2, 4; give fewer folds, or more rows$"):
        check_folds(Folds(rows={"fold": (1, 0, 1, 0, 1)}), ByFold(folds=5))
    with pytest.raises(SourceError, match=r"or more groups of g$"):
        check_folds(Folds(rows={"fold": (1, 0, 1)}), ByFold(folds=3, group="g"))


@given(st.lists(st.integers(1, 500), max_size=40), st.integers(3, 12))
def test_folds_differ_by_a_row_of_each_value_and_by_one_in_all(rows: list[int], folds: int) -> None:
    counts = np.array(apportion(rows, [Fraction(1, folds)] * folds, fills_first=False)).reshape(len(rows), folds)
    assert counts.sum(1).tolist() == rows
    assert (np.ptp(counts, axis=1) <= 1).all()
    assert np.ptp(counts.sum(0)) <= 1


def test_values_of_fewer_rows_than_folds_are_named() -> None:
    strata = [Stratum(number, text, np.array([rows])) for number, (text, rows) in enumerate([("common", 90), ("two", 2), ("lone", 1)])]
    note = describe_missing_folds("c", strata, 5)
    assert (
        note.startswith("dataset.split.stratify: 2 of 3 values of c have fewer rows than there are folds")
        and ": lone (1), two (2);" in note
    )
    assert not describe_missing_folds("c", strata[:1], 5)


def config_with(split: Mapping[str, Any], **sections: Any) -> Config:
    return parse({**VALUES, "dataset": {**VALUES["dataset"], "split": split}, **sections}, "x")


@pytest.mark.parametrize(
    ("split", "sections", "message"),
    [
        ({"folds": 1}, {}, r"dataset\.split\.folds: .* give 3 to 100, such as 5 \(got 1\)"),
        ({"folds": 2}, {}, r"dataset\.split\.folds: one fold is the test, the next one selects the epoch, .* \(got 2\)"),
        ({"folds": 101}, {}, r"\(got 101\)"),
        ({"folds": 5, "repeats": 0}, {}, r"dataset\.split\.repeats: must be at least 1"),
        ({"folds": 5, "by": "part"}, {}, r"dataset\.split: folds decide .*; leave by out, or leave folds out"),
        ({"folds": 5, "train": 0.8, "test": 0.2}, {}, "leave train and test out"),
        ({"folds": 5, "time": "day"}, {}, r"fold_starts says: give \{time: day, fold_starts: .*, or leave time out"),
        ({"folds": 5, "fold_starts": ["1", "2"]}, {}, "leave fold_starts out"),
        ({"time": "day", "fold_starts": ["2020-01-01"]}, {}, r"split\.fold_starts: 1 starts make 2 folds; .*; give 2 to 99"),
        ({"fold_starts": ["1", "2"]}, {}, r"dataset\.split\.time: is missing|dataset\.split.*time"),
        ({"time": "day", "fold_starts": ["1", "2", "3"]}, {"train": {"fold": 3}}, r"there are 4 folds; choose one of 1 to 2"),
        ({"folds": 5, "stratify": "job", "group": "job"}, {}, "stratify and group are both job"),
        ({"folds": 5}, {"train": {"fold": 6}}, r"train\.fold is 6, but there are 5 folds; choose one of 1 to 5"),
        ({"folds": 5, "repeats": 2}, {"train": {"fold": 11}}, "5 folds 2 times; choose one of 1 to 10"),
        ({}, {"train": {"fold": 1}}, r"train\.fold is 1, but dataset\.split has no folds"),
    ],
)
def test_settings_that_do_not_fit_folds_are_one_line(split: dict[str, Any], sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        config_with(split, **sections)
    assert "\n" not in str(error.value)


def test_a_column_called_as_that_of_the_folds_is_refused() -> None:
    features = {**VALUES["dataset"]["features"], "fold": {"encoder": "standardize", "column": "age"}}
    dataset = {**VALUES["dataset"], "features": features, "split": {"folds": 5}}
    with pytest.raises(ConfigError, match=r"dataset: fold: split\.folds adds a column of this name; rename yours"):
        parse({**VALUES, "dataset": dataset}, "x")
    parse({**VALUES, "dataset": {**dataset, "split": {"folds": 5, "repeats": 2}}}, "x")


def test_p3_the_fold_decides_the_model_and_a_config_without_folds_is_as_before() -> None:
    first, second = (config_with({"folds": 5}, train={"fold": fold}).model_identity for fold in (1, 2))
    assert first != second
    assert config_with({"folds": 5}).model_identity == config_with({}).model_identity


METRICS = {1: {"test/auc": 0.9, "test/loss": 0.5}, 2: {"test/auc": 0.8, "test/loss": 0.5}, 3: {"test/loss": 0.8, "validation/auc": 1.0}}


def test_mean_and_deviation_are_of_the_folds_where_a_metric_is_defined() -> None:
    summary = summarize_metrics(METRICS)
    assert summary == pytest.approx(
        {"test/auc_mean": 0.85, "test/auc_std": 0.0707107, "test/loss_mean": 0.6, "test/loss_std": 0.1732051, "validation/auc_mean": 1.0}
    )
    assert metrics_line(METRICS, "test", 1) == "test auc 0.85 ± 0.071 (defined in 2 of 3), loss 0.6 ± 0.17 over 3 folds"
    assert metrics_line(dict.fromkeys(range(1, 7), METRICS[1]), "test", 2) == "test auc 0.9 ± 0, loss 0.5 ± 0 over 3 folds, 2 times"
    assert metrics_line(METRICS, "train", 1) == fold_table(METRICS, "train") == ""
    assert fold_table(METRICS, "test").splitlines()[-1] == "| 3 | undefined | 0.8 |"


def test_an_infinite_metric_has_no_deviation() -> None:
    metrics = {1: {"test/rmse": inf, "test/r2": -inf}, 2: {"test/rmse": 1.0, "test/r2": inf}}
    summary = summarize_metrics(metrics)
    assert summary.keys() == {"test/rmse_mean", "test/r2_mean"} and summary["test/rmse_mean"] == inf and isnan(summary["test/r2_mean"])
    assert metrics_line(metrics, "test", 1) == "test rmse inf, r2 nan over 2 folds"


def test_p8_a_cross_validation_is_resumed_with_its_read_finished_runs_and_ends_once(version: Version, tmp_path: Path) -> None:
    uri = new_store(tmp_path)
    config = config_with({"folds": FOLDS, "repeats": 2}, tracking={"uri": uri})
    client = MlflowClient(uri)

    def train_fold(parent: str, fold: int, status: str) -> str:
        training = config.model_copy(update={"train": config.train.model_copy(update={"fold": fold})})
        run = open_training(training, select_fold(version, fold), {PARENT: parent, FOLD: str(fold)})
        file_metrics(run, {"test/auc": 0.5 + fold / 10, "validation/auc": 1 / 3})
        run.end(status)  # type: ignore[arg-type]
        return run.run_id

    begun = open_cross_validation(config, version, {})
    assert "0 of 8 trainings are finished; the same command trains the others." in report_page(uri, (begun.run_id,))
    with pytest.raises(TrackingError, match=r"is already training the folds .*; wait for it, stop it, or change the config"):
        open_cross_validation(config, version, {})
    assert client.get_run(begun.run_id).data.tags[KIND] == CROSS_VALIDATION
    finished, interrupted = train_fold(begun.run_id, 1, "FINISHED"), train_fold(begun.run_id, 2, "KILLED")
    begun.end("KILLED")
    resumed = open_cross_validation(config, version, {})
    assert (resumed.run_id, resumed.is_resumed, resumed.read_finished_runs()) == (begun.run_id, True, {1: finished})
    assert train_fold(resumed.run_id, 2, "FINISHED") == interrupted, "the interrupted training goes on"
    assert resumed.read_finished_runs() == {1: finished, 2: interrupted}
    assert resumed.final_metrics(finished) == {"test/auc": 0.6, "validation/auc": 1 / 3}
    text = re.sub(r"<[^>]*>", " ", report_page(uri, (begun.run_id,)))
    assert "2 of 8 trainings are finished" in text
    assert re.search(r"test/auc\s+0.65 ± 0.071\s+0.6\s+0.7\s+2 of 2", text)
    assert re.search(rf"2\s+{interrupted}\s+FINISHED\s+\d+ s\s+auc 0.7", text)
    resumed.log_metrics({"test/auc_mean": 0.65})
    resumed.end("FINISHED")
    assert client.get_run(resumed.run_id).data.metrics == {"test/auc_mean": 0.65}
    assert open_cross_validation(config, version, {}).run_id != begun.run_id, "a finished one begins anew"
