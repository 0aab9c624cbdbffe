"""Rows of series as a model is served them: windows are made of the rows of a request, and of no others."""

from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from filed import fit_manifest

from pipelines.config import parse
from pipelines.config.dataset.windows import WindowSettings
from pipelines.config.serving import Endpoint
from pipelines.errors import SourceError
from pipelines.serving.http.openapi import openapi
from pipelines.serving.http.served_model import ServedModel, example_row
from pipelines.serving.model import REFUSED, Predictor
from pipelines.serving.model.scoring import model_signature
from pipelines.serving.model.series_windows import SeriesInputs, _floats, add_windows_to_rows
from pipelines.tasks.bind import build_task

WINDOWS = {"order": "hour", "by": "meter", "lags": {"load": 1}, "rolling": {"load": {"mean": 2, "max": 2}}}
CONFIG: dict[str, Any] = {
    "name": "loads",
    "source": {"tables": {"t": {"format": "parquet", "path": "t"}}, "windows": WINDOWS},
    "dataset": {
        "path": "data",
        "split": {"group": "meter"},
        "features": {"load_lag_1": "standardize", "load_mean_2": "standardize", "heat": "standardize"},
        "target": {"load": "standardize"},
    },
    "task": {"kind": "tabular", "hidden": [8]},
}
RAW = pa.table(
    {
        "meter": ["a", "b"] * 20,
        "hour": pa.array(np.arange(40) // 2, pa.int32()),
        "heat": np.linspace(0, 1, 40),
        "load": np.sin(np.arange(40)),
    }
)


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    config = parse(CONFIG, "loads.yaml")
    windowed = RAW.append_column("load_lag_1", RAW["load"]).append_column("load_mean_2", RAW["load"])
    manifest = fit_manifest(config.dataset, windowed).model_copy(update={"identity": config.data_identity})
    torch.manual_seed(0)
    return Predictor(config.task, manifest, build_task(config.task, manifest).model().state_dict())


def last_rows(meter: str, load: float | None = None) -> list[dict[str, Any]]:
    """The last three rows of a meter; the load of the last is not known yet."""
    rows = [row for row in RAW.to_pylist() if row["meter"] == meter][-3:]
    return [*rows[:2], {**rows[2], "load": load}]


def predict_last(predictor: Predictor, rows: list[dict[str, Any]]) -> float:
    """The prediction of the last row, with columns that are made by hand."""
    columns = {"load_lag_1": rows[1]["load"], "load_mean_2": (rows[0]["load"] + rows[1]["load"]) / 2, "heat": rows[2]["heat"]}
    return float(predictor.predict_frame(pd.DataFrame([columns]))["prediction"][0])


def test_p7_the_last_rows_of_series_are_predicted_as_rows_with_windows(predictor: Predictor) -> None:
    rows = [last_rows("b")[2], *last_rows("a"), *last_rows("b")[:2]]
    answer = predictor.predict_frame(pd.DataFrame(rows, index=range(10, 16)))
    assert answer.index.tolist() == list(range(10, 16))
    expected = [predict_last(predictor, last_rows(meter)) for meter in ("b", "a")]
    assert answer["prediction"].loc[[10, 13]].tolist() == pytest.approx(expected, rel=1e-6)
    reasons = answer[REFUSED].tolist()
    assert [reasons[number] for number in (0, 3)] == [None, None]
    assert reasons[1] == "0 rows of its series are before it, and source.windows needs 2"
    assert reasons[5].startswith("1 row of its series is")


def test_requests_are_series_of_their_own(predictor: Predictor) -> None:
    served = ServedModel(predictor, "7", "ab" * 32, {"load_lag_1": 0.0, "load_mean_2": 0.0, "heat": 0.0})
    alone = served.answers([last_rows("a")])[0]
    plain = [{"load_lag_1": 0.5, "load_mean_2": 0.5, "heat": 0.5}]
    together = served.answers([last_rows("a")[:2], last_rows("a"), plain, [], last_rows("a")[1:]])
    assert together[1] == alone and together[3] == [] and together[2] == served.answers([plain])[0]
    assert all(row[REFUSED] for row in [*together[0], *together[4]]), "no window is of the rows of another request"
    mixed = served.answers([[*plain, *last_rows("a")]])[0]
    assert mixed[0] == served.answers([plain])[0][0], "a row that has its windows is predicted, whatever the others lack"
    assert {row[REFUSED] for row in mixed[1:]} == {"the row has no column load_lag_1; the model takes heat, load_lag_1, load_mean_2"}


def test_integers_beyond_the_precision_of_doubles_are_rounded() -> None:
    values, is_valid = _floats(pa.array([2**53 + 1, None], pa.int64()))
    assert values.tolist() == [2.0**53, 0.0] and is_valid.tolist() == [True, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hour": 19}, "hour 19 comes twice within a series (by: meter); give each row once"),
        ({"hour": None}, "a row has no hour, and so no place in its series; give it, or leave the row out"),
        ({"hour": 2**40}, "rows of a series are predicted together, and the values of column hour cannot be cast to int32"),
    ],
)
def test_rows_without_a_place_are_one_line(predictor: Predictor, change: dict[str, Any], message: str) -> None:
    rows = last_rows("a")
    rows[0] = {**rows[0], **change}
    with pytest.raises(SourceError) as caught:
        predictor.predict_frame(pd.DataFrame(rows).astype({"hour": "Int64"}))
    assert message in str(caught.value) and "\n" not in str(caught.value)
    served = ServedModel(predictor, "7", "ab" * 32, {})
    assert len({row[REFUSED] for row in served.answers([rows])[0]}) == 1


def test_no_row_at_all_may_be_given(predictor: Predictor) -> None:
    empty = pd.DataFrame(last_rows("a")).iloc[:0]
    assert len(predictor.predict_frame(empty)) == 0


def test_signature_and_page_show_both_kinds_of_rows(predictor: Predictor) -> None:
    inputs = model_signature(predictor).inputs
    assert {name for name in inputs.input_names() if name in inputs.required_input_names()} == {"heat"}
    assert set(inputs.optional_input_names()) == {"load_lag_1", "load_mean_2", "meter", "hour", "load"}
    for rows in (last_rows("a"), [{"load_lag_1": 0.5, "load_mean_2": 0.5, "heat": 0.5}]):
        enforced = mlflow.models.utils._enforce_schema(pd.DataFrame(rows), inputs)
        assert not predictor.predict_frame(enforced)[REFUSED].iloc[-1]
    manifest_example = example_row(pd.DataFrame([{"load_lag_1": 0.0, "load_mean_2": 0.0, "heat": 0.0}]))
    description = openapi(ServedModel(predictor, "7", "ab" * 32, manifest_example), Endpoint(), needs_token=False)
    post = description["paths"]["/invocations"]["post"]
    assert "Or they are the last rows of series, with the columns meter, hour, heat, load." in post["description"]


def test_statistics_are_those_of_the_values_that_are_not_null() -> None:
    windows = WindowSettings(order="hour", columns=("load", "n"), history=2, rolling={"n": {"min": (2,), "sum": (2,), "std": (2,)}})
    rows = pa.table({"hour": [1, 2, 3, 4], "load": [1.5, None, 3.0, 0.0], "n": pa.array([4, 2, None, 0], pa.int64())})
    kind = pa.list_(pa.list_(pa.float64()))
    columns = pa.schema({"history": kind, "n_min_2": pa.int64(), "n_sum_2": pa.float64(), "n_std_2": pa.float64()})
    table, reasons = add_windows_to_rows(rows, SeriesInputs(windows, rows.schema, frozenset(columns.names), columns))
    assert table.to_pylist() == [
        {"history": [[1.5, 4.0], [None, 2.0]], "n_min_2": 2, "n_sum_2": 6.0, "n_std_2": pytest.approx(np.sqrt(2))},
        {"history": [[None, 2.0], [3.0, None]], "n_min_2": 2, "n_sum_2": 2.0, "n_std_2": None},
    ]
    assert reasons.null_count == 2
