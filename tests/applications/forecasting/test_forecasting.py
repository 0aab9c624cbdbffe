"""Forecasts: DLinear's shape, errors as they are published, arrays scaled by given numbers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from fitting import fit, fit_encoder
from pydantic import ValidationError

from pipelines.applications.forecasting.settings import ForecastingSettings as Settings
from pipelines.applications.forecasting.task import Forecasting, PatchTransformer
from pipelines.config.features.arrays import ScaleSettings
from pipelines.data.versions.schema import TensorColumn, to_numpy
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data

CONF = Path(__file__).parents[3] / "conf/etth1.yaml"
STEPS, HORIZON, SERIES = 12, 4, 3
COLUMNS = (
    TensorColumn(name="past", dtype="float32", shape=(STEPS, SERIES)),
    TensorColumn(name="future", dtype="float32", shape=(HORIZON, SERIES), role="target"),
)
SCALE: dict[str, Any] = {"encoder": "scale", "shape": [2, 3], "mean": [1, 2, 3], "deviation": [1, 2, 4]}


def task(**settings: Any) -> Forecasting:
    return Forecasting(
        Settings.model_validate({"kind": "forecasting", "kernel": 5, "patch": 4, "width": 8, **settings}),
        Data(COLUMNS, decode=lambda x: 10 * x),
    )


def batch(rows: int = 5) -> Batch:
    torch.manual_seed(0)
    return {"past": torch.randn(rows, STEPS, SERIES), "future": torch.randn(rows, HORIZON, SERIES)}


def test_trend_and_rest_go_through_layers_that_all_series_share() -> None:
    model = task().model()
    assert sum(parameter.numel() for parameter in model.parameters()) == 2 * (STEPS + 1) * HORIZON
    output = model(batch())
    assert output.shape == (5, HORIZON, SERIES)
    turned = {"past": batch()["past"].flip(-1)}
    torch.testing.assert_close(model(turned), output.flip(-1))


def test_a_new_model_forecasts_the_mean_of_the_history() -> None:
    model = task().model()
    torch.nn.init.zeros_(model.trend.bias)
    torch.nn.init.zeros_(model.rest.bias)
    expected = batch()["past"].mean(1, keepdim=True).expand(-1, HORIZON, -1)
    torch.testing.assert_close(model(batch()), expected)


NETWORKS = [(network, normalize) for network in ("dlinear", "linear", "transformer") for normalize in ("none", "last", "deviation")]


@pytest.mark.parametrize(("network", "normalize"), NETWORKS)
def test_a_normalised_forecast_follows_the_level_and_the_spread_of_its_history(network: str, normalize: str) -> None:
    model, rows = task(network=network, normalize=normalize).model().eval(), batch()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        forecast = model(rows)
        higher = model({**rows, "past": rows["past"] + 7})
        wider = model({**rows, "past": 7 + 3 * (rows["past"] - 7)})
    assert torch.allclose(higher, forecast + 7, atol=1e-4) is (normalize != "none")
    assert torch.allclose(wider, 7 + 3 * (forecast - 7), atol=1e-3) is (normalize == "deviation")


@pytest.mark.parametrize(("network", "normalize"), NETWORKS)
def test_a_constant_history_has_a_finite_forecast_and_gradient(network: str, normalize: str) -> None:
    learned, rows = task(network=network, normalize=normalize), batch()
    model = learned.model()
    loss, _ = learned.loss(model, {**rows, "past": torch.full_like(rows["past"], 2.0)})
    loss.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize(("steps", "patch", "tokens"), [(12, 4, 6), (12, 12, 2), (12, 5, 5), (3, 2, 3)])
def test_patches_cover_the_history_and_series_are_forecast_by_themselves(steps: int, patch: int, tokens: int) -> None:
    torch.manual_seed(1)
    model = PatchTransformer("past", steps, HORIZON, patch, 2, 8, 2, 0.1).eval()
    history = torch.randn(4, steps, SERIES, requires_grad=True)
    forecast = model({"past": history})
    assert forecast.shape == (4, HORIZON, SERIES) and len(model.places) == tokens
    forecast[0, :, 0].sum().backward()
    assert history.grad is not None
    assert history.grad[0, :, 0].all(), "every step counts"
    assert not history.grad[1:].any() and not history.grad[0, :, 1:].any()
    assert model({"past": history[:0]}).shape == (0, HORIZON, SERIES)


def test_a_patch_longer_than_the_history_is_one_line() -> None:
    with pytest.raises(
        ConfigError, match=r"task\.patch is 16, but past has 12 steps; set it to 12 or less, or make source\.windows\.history longer"
    ):
        task(network="transformer", patch=16)
    task(network="transformer", patch=12)
    task(network="linear", patch=16)


def test_heads_divide_the_width() -> None:
    with pytest.raises(ValidationError, match="width is 30; with 4 heads it must be a multiple of 4, such as 28"):
        task(width=30)


def test_errors_are_those_of_numpy_and_the_baseline_repeats_the_last_value() -> None:
    learned, rows = task(), batch(7)
    model, metrics = learned.model(), learned.metrics()
    for part in (slice(0, 3), slice(3, 7)):
        part_rows = {name: values[part] for name, values in rows.items()}
        learned.update(metrics, model(part_rows), part_rows)
    metric_by_name = {name: value.item() for name, value in metrics.compute().items()}
    forecast, true = model(rows).detach().double().numpy(), rows["future"].double().numpy()
    last = rows["past"][:, -1:].double().numpy()
    assert metric_by_name == pytest.approx(
        {
            "mse": ((forecast - true) ** 2).mean(),
            "mae": abs(forecast - true).mean(),
            "repeat_last_mse": ((last - true) ** 2).mean(),
            "repeat_last_mae": abs(last - true).mean(),
        }
    )
    loss, weight = learned.loss(model, rows)
    assert (loss / weight).item() == pytest.approx(metric_by_name["mse"], rel=1e-5) and weight == 7


def test_predictions_are_in_the_query_s_units() -> None:
    learned, rows = task(), batch(2)
    output = learned.model()(rows)
    predicted = np.array(learned.predict(output)["prediction"])
    np.testing.assert_allclose(predicted, 10 * output.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("shapes", [((12, 3), (4, 2)), ((12,), (4,)), ((12, 3), ()), ((12, 3, 1), (4, 3, 1))])
def test_columns_that_are_no_history_are_named(shapes: tuple[tuple[int, ...], ...]) -> None:
    columns = tuple(replace(column, shape=shape) for column, shape in zip(COLUMNS, shapes, strict=True))
    with pytest.raises(ConfigError, match=r"takes one feature of shape \(steps, series\) and a target of .*but got past \("):
        Forecasting(Settings(), Data(columns))


def test_an_average_has_a_middle() -> None:
    with pytest.raises(ConfigError, match="kernel is 24; a centred moving average needs an odd number of steps, such as 25"):
        Settings(kernel=24)


@pytest.mark.parametrize("value", [[[1, 2, 3], [2, 4, 7]], [1, 2, 3, 2, 4, 7]])
def test_arrays_are_scaled_along_their_last_axis(value: list) -> None:
    encoder = fit_encoder(SCALE, pa.array([value]))
    encoded = to_numpy(encoder.column("a", "feature"), encoder.encode(pa.array([value])))
    assert encoded.tolist() == [[[0, 0, 0], [1, 1, 1]]] and encoded.dtype == np.float32
    assert encoder.decode(encoded).tolist() == [[[1, 2, 3], [2, 4, 7]]]


def test_arrays_of_another_shape_or_without_a_number_are_refused() -> None:
    rows = pa.array([[[1.0, 2.0, 3.0]] * 2, [[1.0, 2.0, 3.0]], [[1.0, None, 3.0]] * 2, [[1.0, float("nan"), 3.0]] * 2, None])
    assert fit_encoder(SCALE, rows.slice(0, 1)).encode(rows).is_valid().to_pylist() == [True, False, False, False, False]
    with pytest.raises(ConfigError, match="it takes arrays of numbers"):
        fit({"a": SCALE}, {"b": "identity"}, pa.table({"a": ["x"], "b": [1]}))


def test_every_entry_has_its_mean_and_deviation() -> None:
    with pytest.raises(ValidationError, match=r"mean has 2 numbers and deviation 3; the last axis of shape \[2, 3\] needs 3 of each"):
        ScaleSettings.model_validate({**SCALE, "mean": [1, 2]})
