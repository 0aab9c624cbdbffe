"""`source.windows` in a config: names of columns, splits that keep the past from the future, scales that are fitted."""

from copy import deepcopy
from typing import Any

import pytest

from pipelines.config import parse
from pipelines.config.dataset.windows import WindowSettings
from pipelines.errors import ConfigError

LOADS: dict[str, Any] = {
    "name": "loads",
    "source": {
        "tables": {"loads": {"format": "csv", "path": "loads.csv", "schema": "meter string, hour timestamp, load double, heat double"}},
        "windows": {"order": "hour", "by": "meter", "columns": ["load", "heat"], "history": 48, "horizon": 24},
    },
    "dataset": {
        "path": "data",
        "split": {"time": "hour", "validation": "2017-01-01", "test": "2017-07-01"},
        "features": {"history": "scale"},
        "target": {"future": "scale"},
    },
    "task": {"kind": "forecasting"},
}
LAGS = {"order": "hour", "by": "meter", "lags": {"load": [1, 24]}, "rolling": {"load": {"mean": 24, "std": [24, 168]}}}


def config_values(windows: dict[str, Any] | None = None, **dataset: Any) -> dict[str, Any]:
    values = deepcopy(LOADS)
    values["source"]["windows"] = windows or values["source"]["windows"]
    values["dataset"] |= dataset
    return values


def tabular(**dataset: Any) -> dict[str, Any]:
    """Lags as features, and the load itself as the target."""
    values = config_values(LAGS, features={"load_lag_1": "standardize"}, target={"load": "standardize"}, **dataset)
    return {**values, "task": {"kind": "tabular"}}


def fault(values: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(values, "x.yaml")
    return str(caught.value)


def test_columns_are_named_after_what_they_hold() -> None:
    windows = WindowSettings.model_validate(LAGS)
    assert list(windows.generated) == ["load_lag_1", "load_lag_24", "load_mean_24", "load_std_24", "load_std_168"]
    assert (windows.rows_before, windows.by) == (168, ("meter",))
    assert WindowSettings.model_validate({"order": "hour", "lags": {"load": 3}}).rows_before == 3


def test_scales_of_history_and_future_are_those_of_the_windows() -> None:
    dataset = parse(config_values(), "x.yaml").dataset
    assert [(settings.shape, settings.learns_from(name)) for name, settings in dataset.encoders.items()] == [
        ((48, 2), ("load", "heat")),
        ((24, 2), ("load", "heat")),
    ]
    by_hand = {"encoder": "scale", "column": "history", "mean": [1, 2], "deviation": [3, 4]}
    scale = parse(config_values(features={"past": by_hand}), "x.yaml").dataset.features["past"]
    assert (scale.shape, scale.mean, scale.moments_of) == ((48, 2), (1, 2), ())


def test_p6_a_config_without_windows_is_dumped_as_before() -> None:
    values = config_values(features={"load": "standardize"}, target={"heat": "standardize"}, split={})
    del values["source"]["windows"]
    config = parse({**values, "task": {"kind": "tabular"}}, "x.yaml")
    assert "windows" not in config.data_identity["source"] and "windows" not in config.model_dump(mode="json")["source"]
    scale = {"encoder": "scale", "shape": [2], "mean": [0, 0], "deviation": [1, 1]}
    settings = parse({**values, "dataset": {**values["dataset"], "features": {"a": scale}}}, "x.yaml").dataset.features["a"]
    assert settings.model_dump(mode="json") == {**scale, "column": "", "mean": [0.0, 0.0], "deviation": [1.0, 1.0]}


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ({}, "dataset.split is by chance (by: meter), but a row of source.windows contains others of its series"),
        ({"group": "house"}, "dataset.split is by house, which is not in source.windows.by (by: meter), but a row of"),
        ({"by": "part", "validation": 0.1}, "dataset.split.validation is 0.1, which moves rows by chance"),
        ({"time": "day", "validation": "2017-01-01", "test": "2017-07-01"}, "dataset.split.time is day, but source.windows.order is hour"),
    ],
)
def test_splits_that_would_mix_past_and_future_are_refused(split: dict[str, Any], expected: str) -> None:
    assert expected in fault(config_values(split=split))
    assert expected in fault(tabular(split=split))


@pytest.mark.parametrize("split", [{"group": "meter"}, {"group": "meter", "stratify": "heat"}, {"by": "part"}])
def test_splits_of_whole_series_and_published_ones_are_taken(split: dict[str, Any]) -> None:
    assert parse(config_values(split=split), "x.yaml").source.windows


@pytest.mark.parametrize("features", [{"load": "standardize"}, {"later": {"encoder": "scale", "column": "future"}}])
def test_no_feature_is_of_what_is_to_be_predicted(features: dict[str, Any]) -> None:
    assert "which is in the row's future, the target of source.windows.horizon" in fault(config_values(features=features))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"lags": {"load": [0]}}, "greater than 0"),
        ({"lags": {"load": [2, 2]}}, "2 is named more than once; name it once"),
        ({"lags": {"load": []}}, "source.windows.lags.load: must not be empty"),
        ({"rolling": {"load": {"median": 3}}}, "median"),
        ({"rolling": {"load": {"std": 1}}}, "rolling.load.std is of 1 row, which has no deviation; take 2 rows or more"),
        ({"by": ["hour"]}, "order and by are both hour"),
        ({"columns": []}, "history or horizon is set, but columns has no column"),
        ({"history": 0, "horizon": 0}, "columns is set, but history and horizon are 0"),
        ({"columns": [], "history": 0, "horizon": 0}, "it makes no column; set lags, rolling, or columns with history and horizon"),
        ({"order": None}, "order"),
        ({"lag": {"load": [1]}}, "lag"),
    ],
)
def test_what_makes_no_window_is_one_line(change: dict[str, Any], expected: str) -> None:
    message = fault(config_values({**LOADS["source"]["windows"], **change}))
    assert expected in message and "Traceback" not in message


def test_a_scale_is_given_or_fitted() -> None:
    scale = {"encoder": "scale", "shape": [48, 2], "moments_of": ["load", "heat", "wind"]}
    assert "moments_of has 3 columns; the last axis of shape [48, 2] needs 2, one an entry, or one for all" in fault(
        config_values(features={"history": scale})
    )
    both = {"encoder": "scale", "shape": [48, 2], "moments_of": ["load", "heat"], "mean": [0, 0], "deviation": [1, 1]}
    assert "moments_of is set, and so is mean or deviation; remove moments_of, or mean and deviation" in fault(
        config_values(features={"history": both})
    )
