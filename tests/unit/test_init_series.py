"""Rows in order of time whose target depends on its own past: drafts with windows, and what their models must beat."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from drafts import draft_config
from filed import fit_manifest

from pipelines.config import parse
from pipelines.config.reading import from_yaml
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request, yaml_text
from pipelines.init.tables.time_series import find_seasons
from pipelines.tasks.bind import build_task, check_task

HOURS = 1_500


@pytest.fixture
def loads() -> pd.DataFrame:
    """A load with a day's rhythm and a slow drift that no other column knows."""
    random = np.random.default_rng(0)
    drift = np.zeros(HOURS)
    for hour in range(1, HOURS):
        drift[hour] = 0.95 * drift[hour - 1] + 15 * random.normal()
    hours = pd.date_range("2024-01-01", periods=HOURS, freq="h").strftime("%Y-%m-%d %H:%M:%S")
    warmth = random.normal(size=HOURS).round(2)
    return pd.DataFrame({"hour": hours, "warmth": warmth, "load": 60 * np.sin(np.arange(HOURS) / 24 * 2 * np.pi) + 9 * warmth + drift})


def draft(folder: Path, frame: pd.DataFrame, target: str = "load") -> Draft:
    """The draft of a CSV, whose text is a valid config."""
    frame.to_csv(folder / "series.csv", index=False)
    result = draft_config(Request(str(folder / "series.csv"), target, "series"))
    check_task(parse(from_yaml(yaml_text(result)), "series.yaml"))
    return result


def test_a_target_that_depends_on_its_past_has_its_earlier_values_as_features(tmp_path: Path, loads: pd.DataFrame) -> None:
    result = draft(tmp_path, loads)
    windows = result.sections["source"]["windows"]
    newest_first = draft(tmp_path, loads[::-1])
    assert newest_first.comments["source", "windows"] == result.comments["source", "windows"]
    assert windows == {"order": "hour", "lags": {"load": [1, 2, 24]}, "rolling": {"load": {"mean": 24}}}
    features = result.sections["dataset"]["features"]
    assert {"load_lag_1", "load_lag_2", "load_lag_24", "load_mean_24", "hour_hour", "warmth"} <= features.keys()
    assert result.sections["dataset"]["split"]["time"] == "hour"
    assert "load depends on its past" in result.assumptions[-1] and "remove source.windows" in result.assumptions[-1]
    assert "autocorrelation" in result.comments["source", "windows"]
    values = from_yaml(yaml_text(result))  # what the assumption offers
    del values["source"]["windows"]
    values["dataset"]["features"] = {name: encoder for name, encoder in features.items() if not name.startswith("load_")}
    check_task(parse(values, "series.yaml"))


def test_a_series_of_one_column_is_predicted_from_its_past(tmp_path: Path) -> None:
    """Years of a cycle of eleven, as of sunspots: days and months say nothing."""
    random = np.random.default_rng(0)
    years = [f"{1700 + year}-01-01" for year in range(300)]
    spots = 50 + 45 * np.sin(2 * np.pi * np.arange(300) / 11) + 5 * random.normal(size=300)
    result = draft(tmp_path, pd.DataFrame({"year": years, "spots": spots.round(1)}), "spots")
    assert result.sections["source"]["windows"]["lags"]["spots"] == [1, 2, 11]


@pytest.mark.parametrize(("name", "first"), [("year", 1700), ("number", 1)])
def test_a_series_in_the_order_of_years_or_of_row_numbers_is_predicted_from_its_past(tmp_path: Path, name: str, first: int) -> None:
    random, steps = np.random.default_rng(0), np.arange(300)
    spots = (50 + 45 * np.sin(2 * np.pi * steps / 11) + 5 * random.normal(size=300)).round(1)
    result = draft(tmp_path, pd.DataFrame({name: first + steps, "spots": spots}), "spots")
    assert result.sections["source"]["windows"]["order"] == name
    assert result.sections["dataset"]["split"] == {"time": name, "validation": first + 240, "test": first + 270}
    assert name not in result.sections["dataset"]["features"] and "EXCEPT" not in result.sections["source"].get("query", "")


def test_a_column_of_numbers_alone_needs_an_order(tmp_path: Path) -> None:
    """With the column that the message asks for, it is the series of the test above."""
    (tmp_path / "series.csv").write_text("spots\n" + "".join(f"{number % 11}\n" for number in range(300)))
    with pytest.raises(ConfigError, match=r"one column, spots, .* the date, the time or the number of each row in order"):
        draft_config(Request(str(tmp_path / "series.csv"), "", "series"))


@pytest.fixture
def sales() -> pd.DataFrame:
    """Each day's sales of 12 stores, which differ, and drift each by itself, with a week's rhythm; store by store."""
    random, days = np.random.default_rng(0), np.arange(150)
    dates = pd.date_range("2023-01-01", periods=150).strftime("%Y-%m-%d")
    parts = []
    for store in range(12):
        drift = np.cumsum(random.normal(size=150)) * 3
        values = 100 + 20 * random.normal() + 10 * np.sin(2 * np.pi * days / 7) + drift + random.normal(size=150)
        parts.append(pd.DataFrame({"store": store + 1, "day": dates, "promo": random.normal(size=150).round(3), "sales": values.round(2)}))
    return pd.concat(parts)


@pytest.mark.parametrize("is_by_day", [False, True])
def test_a_panel_is_split_by_time_and_each_series_has_its_own_past(tmp_path: Path, sales: pd.DataFrame, is_by_day: bool) -> None:
    result = draft(tmp_path, sales.sort_values(["day", "store"]) if is_by_day else sales, "sales")
    windows = result.sections["source"]["windows"]
    assert windows == {"order": "day", "by": ["store"], "lags": {"sales": [1, 2, 7]}, "rolling": {"sales": {"mean": 7}}}
    assert result.sections["dataset"]["split"] == {"time": "day", "validation": "2023-05-01", "test": "2023-05-16"}
    assert result.sections["dataset"]["features"]["store"] == "vocabulary"
    assert any("the rows are a panel" in doubt and "dataset.split.group, store" in doubt for doubt in result.assumptions)
    values = from_yaml(yaml_text(result))
    del values["source"]["windows"]  # what the draft of a panel offers
    values["dataset"]["split"] = {"group": "store"}
    features = values["dataset"]["features"]
    values["dataset"]["features"] = {name: encoder for name, encoder in features.items() if not name.startswith("sales_")}
    assert parse(values, "toy.yaml").dataset.split.group == "store"


def test_two_columns_may_name_the_series_of_a_panel(tmp_path: Path, sales: pd.DataFrame) -> None:
    stores = sales["store"].to_numpy()
    frame = sales.assign(store=(stores + 2) // 3, article=stores % 3)[["day", "store", "article", "promo", "sales"]]
    assert draft(tmp_path, frame, "sales").sections["source"]["windows"]["by"] == ["store", "article"]


def test_visits_at_times_of_their_own_are_no_panel(tmp_path: Path, sales: pd.DataFrame) -> None:
    """Of 12 persons, each with 150 visits on days of four years."""
    random = np.random.default_rng(0)
    days = [pd.Timestamp("2020-01-01") + pd.Timedelta(days=int(day)) for _ in range(12) for day in random.choice(1_460, 150, replace=False)]
    result = draft(tmp_path, sales.assign(day=[str(day.date()) for day in days]), "sales")
    assert "windows" not in result.sections["source"] and "time" not in result.sections["dataset"]["split"]


@pytest.mark.parametrize("kind", ["noise", "explained", "shuffled", "ties"])
def test_rows_whose_target_does_not_need_its_past_have_no_windows(tmp_path: Path, loads: pd.DataFrame, kind: str) -> None:
    """Noise; a target that other columns explain, although it has a rhythm; rows in no order; and two rows at a time."""
    random = np.random.default_rng(1)
    frame = {
        "noise": loads.assign(load=random.normal(size=HOURS)),
        "explained": loads.assign(load=2 * loads["warmth"] + 0.1 * random.normal(size=HOURS)),
        "shuffled": loads.sample(frac=1, random_state=0),
        "ties": loads.assign(hour=loads["hour"].where(loads.index % 50 > 0, loads["hour"].shift(-1))),
    }[kind]
    assert "windows" not in draft(tmp_path, frame).sections["source"]


def test_seasons_are_found_beside_a_trend_and_none_in_noise() -> None:
    random, steps = np.random.default_rng(0), np.arange(2_000)
    assert find_seasons([0.5 * steps + 20 * np.sin(2 * np.pi * steps / 12) + random.normal(size=2_000)]) == [12]
    week = np.sin(2 * np.pi * steps / 24) + 0.7 * np.sin(2 * np.pi * steps / 168) + 0.1 * random.normal(size=2_000)
    assert 168 in find_seasons([week])
    assert find_seasons([random.normal(size=2_000)]) == [] == find_seasons([np.ones(500)])


def test_a_model_must_beat_the_values_before() -> None:
    """In the units of the query: each row's baseline is the value that its own feature holds."""
    windows = {"order": "hour", "lags": {"load": [1, 24]}}
    config: Any = {
        "name": "loads",
        "source": {"tables": {"t": {"format": "parquet", "path": "t"}}, "windows": windows},
        "dataset": {
            "path": "data",
            "split": {"time": "hour", "validation": 20, "test": 30},
            "features": {"load_lag_1": "standardize", "load_lag_24": "minmax", "heat": "standardize"},
            "target": {"load": "standardize"},
        },
        "task": {"kind": "tabular"},
    }
    random = np.random.default_rng(0)
    columns = {name: 100 + 7 * random.normal(size=40) for name in ("load", "load_lag_1", "load_lag_24", "heat")}
    parsed = parse(config, "loads.yaml")
    manifest = fit_manifest(parsed.dataset, pa.table({"hour": np.arange(40), **columns}))
    task = build_task(parsed.task, manifest)
    earlier = {predictor.name: predictor for predictor in task.trivial_predictors() if "before" in predictor.name}
    assert earlier.keys() == {"the value 1 row before", "the value 24 rows before"}
    batch = {"load_lag_1": torch.tensor([0.0, 1.5]), "load_lag_24": torch.tensor([0.0, 1.0])}
    predicted = {name: task.predict(predictor.output(batch))["prediction"] for name, predictor in earlier.items()}
    last = columns["load_lag_1"]
    np.testing.assert_allclose(predicted["the value 1 row before"], last.mean() + np.array([0, 1.5]) * last.std(), rtol=1e-6)
    season = columns["load_lag_24"]
    np.testing.assert_allclose(predicted["the value 24 rows before"], [season.min(), season.max()], rtol=1e-6)
