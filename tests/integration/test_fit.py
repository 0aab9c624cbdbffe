"""From a frame to predictions in one call, as in a notebook, in which Spark and Ray run already."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import ray
from pyspark.sql import SparkSession

from pipelines import api
from pipelines.errors import ConfigError

ROWS = 600


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Customers, who have left by their age and plan."""
    draw = np.random.default_rng(0)
    age, plan = draw.integers(18, 80, ROWS), draw.choice(["basic", "plus", "pro"], ROWS)
    has_left = (age > 50) ^ (plan == "basic")
    return pd.DataFrame({"age": age, "plan": pd.Categorical(plan), "spent": draw.lognormal(3, 1, ROWS).round(2), "left": has_left})


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("ray_cluster")
def test_p1_a_frame_becomes_a_model_that_answers_with_frames(
    frame: pd.DataFrame, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    settings = {"train.workers": 1, "train.epochs": 30}
    run = api.fit(frame, target="left", overrides=settings, name="churn")
    assert run.metrics["test/accuracy"] > 0.9 and run.config.name == "churn"
    assert Path(run.page).read_text().startswith("<!")
    new_rows = frame.drop(columns="left")
    predicted = run.predict(new_rows)
    assert len(predicted) == ROWS and predicted["refused"].isna().all()
    assert ((predicted["prediction"] == "true") == frame["left"]).mean() > 0.9
    html = run._repr_html_()
    assert "test/accuracy" in html and run.result.model in html
    # Equal rows and settings in another library find the dataset again.
    second_run = api.fit(
        spark.createDataFrame(frame.astype({"plan": str})), target="left", overrides={**settings, "train.max_steps": 1}, name="churn"
    )
    assert second_run.dataset.digest == run.dataset.digest
    assert spark.range(3).count() == 3 and ray.is_initialized(), "Spark and Ray are the notebook's own"


def test_a_target_that_is_no_column_is_one_line_and_nothing_is_made(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="left") as error:
        api.fit(frame, target="lefft")
    assert "\n" not in str(error.value)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["frames"]
