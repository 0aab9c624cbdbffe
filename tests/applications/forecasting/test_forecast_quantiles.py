"""Forecasts of quantiles: the loss of scikit-learn, quantiles in order, naive intervals, and one answer from all ways to serve a model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from fitting import fit
from sklearn.metrics import mean_pinball_loss
from test_forecasting import COLUMNS, HORIZON, NETWORKS, SERIES, STEPS, batch
from test_forecasting import task as create_task

from pipelines.applications.forecasting.settings import ForecastingSettings
from pipelines.applications.forecasting.task import Forecasting
from pipelines.config.serving import Endpoint
from pipelines.config.tasks.task import TabularSettings
from pipelines.data.versions.plain import commit_arrays
from pipelines.data.versions.schema import schema_to_text
from pipelines.errors import ConfigError
from pipelines.serving.http.openapi import openapi
from pipelines.serving.http.served_model import ServedModel
from pipelines.serving.model import Predictor
from pipelines.serving.model.scoring import model_signature
from pipelines.tasks.answers import find_answer
from pipelines.tasks.bind import task_data

SHARES = (0.05, 0.5, 0.95)
QUANTILES: dict[str, Any] = {"loss": "quantiles", "quantiles": list(SHARES)}
SCALE = {"encoder": "scale", "mean": [1.0, 2.0, 3.0], "deviation": [1.0, 2.0, 4.0]}


def task(**settings: Any) -> Forecasting:
    return create_task(**{**QUANTILES, **settings})


def noisy_model(forecasting: Forecasting) -> torch.nn.Module:
    """A model whose quantiles differ, and cross."""
    torch.manual_seed(1)
    model = forecasting.model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize(("network", "normalize"), NETWORKS)
def test_loss_and_metrics_are_those_of_scikit_learn(network: str, normalize: str) -> None:
    forecasting, rows = task(network=network, normalize=normalize), batch(7)
    model, metrics = noisy_model(forecasting), forecasting.metrics()
    output = model(rows).detach()
    assert output.shape == (7, len(SHARES), HORIZON, SERIES)
    forecasting.update(metrics, output, rows)
    values = {name: value.item() for name, value in metrics.compute().items()}
    true, predicted = rows["future"].double().numpy(), np.sort(output.double().numpy(), axis=1)
    raw = output.double().numpy()

    def pinball(forecasts: np.ndarray) -> float:
        return float(np.mean([mean_pinball_loss(true.ravel(), forecasts[:, k].ravel(), alpha=q) for k, q in enumerate(SHARES)]))

    last = rows["past"][:, -1:].double().numpy()
    assert values == pytest.approx(
        {
            "pinball": pinball(predicted),
            "loss": pinball(raw),
            "coverage": ((predicted[:, 0] <= true) & (true <= predicted[:, -1])).mean(),
            "mse": ((predicted[:, 1] - true) ** 2).mean(),
            "mae": abs(predicted[:, 1] - true).mean(),
            "repeat_last_mse": ((last - true) ** 2).mean(),
            "repeat_last_mae": abs(last - true).mean(),
        }
    )
    loss, weight = forecasting.loss(model, rows)
    assert (loss / weight).item() == pytest.approx(values["loss"], rel=1e-5) and weight == 7
    assert forecasting.monitor == ("pinball", "min") == forecasting.choose_monitor("")


@pytest.mark.parametrize(("network", "normalize"), NETWORKS)
def test_a_new_model_has_the_quantiles_of_a_normal_distribution(network: str, normalize: str) -> None:
    torch.manual_seed(0)
    output = task(network=network, normalize=normalize).model()({"past": torch.zeros(2, STEPS, SERIES)})
    spread = (output[:, 2] - output[:, 0]).detach().mean().item()
    assert spread == pytest.approx(2 * 1.645, abs=0.6)


def test_training_finds_the_quantiles_of_the_noise() -> None:
    torch.manual_seed(0)
    past = torch.randn(300, STEPS, SERIES)
    rows = {"past": past, "future": past[:, -1:] + torch.empty(300, HORIZON, SERIES).exponential_()}
    forecasting = task(network="linear", quantiles=[0.1, 0.5, 0.9])
    model, metrics = forecasting.model(), forecasting.metrics()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(120):
        optimizer.zero_grad()
        loss, weight = forecasting.loss(model, rows)
        (loss / weight).backward()
        optimizer.step()
    forecasting.update(metrics, model(rows), rows)
    assert metrics.compute()["coverage"].item() == pytest.approx(0.8, abs=0.05)
    spread = (model(rows) - past[:, -1:].unsqueeze(1)).detach().mean((0, 2, 3))
    np.testing.assert_allclose(spread, -np.log(1 - np.array([0.1, 0.5, 0.9])), atol=0.15)


def test_a_forecast_of_one_quantile_has_no_coverage_and_no_bounds() -> None:
    forecasting, rows = task(quantiles=[0.9]), batch()
    output = noisy_model(forecasting)(rows).detach()
    assert "coverage" not in forecasting.metrics() and not forecasting.target.bounds(output)
    assert set(forecasting.predict(output)) == {"prediction", "quantile_0.9"}


def test_naive_forecasts_have_the_errors_of_repeating_and_intervals_from_them() -> None:
    forecasting, rows = task(), batch(400)
    rows["future"] = rows["past"][:, -1:] + torch.arange(400.0)[:, None, None].expand(400, HORIZON, SERIES) / 100
    repeated, season, spread = forecasting.trivial_predictors()
    for predictor in (repeated, season, spread):
        predictor.fit(rows)
        predictor.finish()
    assert spread.name == "repeat last value, with its errors" and "steps" in season.name
    last = rows["past"][:, -1:].double().expand_as(rows["future"])
    torch.testing.assert_close(repeated.output(rows), last.unsqueeze(1).expand(-1, 3, -1, -1))
    widths = (spread.output(rows) - last.unsqueeze(1)).mean((0, 2, 3))
    np.testing.assert_allclose(widths, np.array(SHARES) * 4, atol=0.1)
    metrics = forecasting.metrics()
    forecasting.update(metrics, spread.output(rows), rows)
    assert metrics.compute()["coverage"].item() == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("settings", [ForecastingSettings, TabularSettings])
@pytest.mark.parametrize("shares", [[0.5, 0.1], [0.1, 0.1, 0.9], [], [0.0, 0.5], [0.5, 1.0]])
def test_quantiles_that_are_none_are_refused_alike(settings: type, shares: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"name each once, the lowest first|greater than 0|less than 1"):
        settings(loss="quantiles", quantiles=shares)


def test_p7_model_http_and_export_give_one_answer(tmp_path: Path) -> None:
    names = ("past", "future")
    encoded = {name: values.numpy() for name, values in batch().items()}
    lists = pa.list_(pa.list_(pa.float64()))
    raw_rows = pa.table({name: pa.array((values * [1, 2, 4] + [1, 2, 3]).tolist(), lists) for name, values in encoded.items()})
    shapes = {column.name: list(column.shape) for column in COLUMNS}
    past, future = ({name: {**SCALE, "shape": shapes[name]}} for name in names)
    encoders = fit(past, future, raw_rows)
    version = commit_arrays(
        str(tmp_path / "data"), {"train": [encoded]}, encoders, 2**16, raw_schema=schema_to_text(pa.schema([("past", lists)]))
    )
    settings = ForecastingSettings.model_validate({"kind": "forecasting", "kernel": 5, **QUANTILES})
    forecasting = Forecasting(settings, task_data(encoders))
    model = noisy_model(forecasting)
    predictor = Predictor(settings, version.manifest, model.state_dict())
    served = ServedModel(predictor, "1", "ab" * 32, {"past": raw_rows["past"][0].as_py()})
    (answers,) = served.answers([[{"past": values} for values in raw_rows["past"].to_pylist()]])
    with torch.no_grad():
        output = model(batch())
    expected, form = forecasting.predict(output), json.loads(json.dumps(forecasting.prediction_form()))
    exported = find_answer(form)(output.double().numpy(), form, forecasting.data.decode)
    assert json.dumps(answers, allow_nan=False) and openapi(served, Endpoint(), needs_token=False) and model_signature(predictor)
    assert set(answers[0]) == {*expected, "refused"} and set(exported) == set(expected) == {
        "prediction", "quantile_0.05", "quantile_0.5", "quantile_0.95"}  # fmt: skip
    for name, values in expected.items():
        assert np.shape(values) == (5, HORIZON, SERIES)
        np.testing.assert_allclose([row[name] for row in answers], values, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(exported[name], values, rtol=1e-9)
    assert (
        np.all(np.array(expected["quantile_0.05"]) <= np.array(expected["quantile_0.95"]))
        and expected["prediction"] == expected["quantile_0.5"]
    )
