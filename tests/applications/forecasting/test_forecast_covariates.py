"""Features beside the history of a forecast: of the row's series, such as its region, and of its time, such as the hour."""

from typing import Any

import pytest
import torch
from test_forecasting import NETWORKS

from pipelines.applications.forecasting.settings import ForecastingSettings
from pipelines.applications.forecasting.task import Forecasting
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data

STEPS, HORIZON, SERIES, REGIONS, HOURS = 8, 4, 2, 3, 4
REGION = TensorColumn(name="region", dtype="int32", cardinality=REGIONS)
ANGLES = TensorColumn(name="hour", dtype="float32", shape=(HOURS,))
PAST = TensorColumn(name="past", dtype="float32", shape=(STEPS, SERIES))
FUTURE = TensorColumn(name="future", dtype="float32", shape=(HORIZON, SERIES), role="target")
ALONE, BESIDE = (PAST, FUTURE), (REGION, ANGLES, PAST, FUTURE)
QUANTILES = {"loss": "quantiles", "quantiles": (0.1, 0.5, 0.9)}


def create_task(columns: tuple[TensorColumn, ...], **settings: Any) -> Forecasting:
    return Forecasting(ForecastingSettings(**{"kernel": 5, "patch": 4, "width": 8, "dropout": 0.0, **settings}), Data(columns))


def regional_rows(rows: int = 240) -> Batch:
    """Walks that go on at the level of their last value, shifted by region, series and step, and by the hour."""
    random = torch.Generator().manual_seed(0)
    region, hour = torch.arange(rows) % REGIONS, torch.arange(rows) // REGIONS % HOURS
    past = torch.randn(rows, STEPS, SERIES, generator=random).cumsum(1)
    of_region = torch.randn(REGIONS, HORIZON, SERIES, generator=random)
    of_hour = torch.randn(HOURS, HORIZON, SERIES, generator=random)
    future = past[:, -1:] + of_region[region] + of_hour[hour] + 0.1 * torch.randn(rows, HORIZON, SERIES, generator=random)
    return {"region": region.int(), "hour": torch.eye(HOURS)[hour], "past": past, "future": future}


def loss_after_training(task: Forecasting, rows: Batch) -> float:
    torch.manual_seed(0)
    model = task.model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(80):
        optimizer.zero_grad()
        loss, weight = task.loss(model, rows)
        (loss / weight).backward()
        optimizer.step()
    return (loss / weight).item()


@pytest.mark.parametrize("settings", [{"network": network, "normalize": normalize} for network, normalize in NETWORKS] + [QUANTILES])
def test_the_loss_falls_where_series_differ_by_region_and_hour(settings: dict[str, Any]) -> None:
    rows = regional_rows()
    alone, informed = (loss_after_training(create_task(columns, **settings), rows) for columns in (ALONE, BESIDE))
    assert informed < 0.25 * alone


@pytest.mark.parametrize(("network", "normalize"), NETWORKS)
@pytest.mark.parametrize("settings", [{}, QUANTILES])
def test_a_new_model_forecasts_as_without_and_every_row_by_itself(network: str, normalize: str, settings: dict[str, Any]) -> None:
    rows, tasks = regional_rows(5), [create_task(columns, network=network, normalize=normalize, **settings) for columns in (ALONE, BESIDE)]
    outputs = []
    for task in tasks:
        torch.manual_seed(1)
        outputs.append(task.model()(rows))
    assert torch.equal(*outputs)
    model = tasks[1].model()
    torch.nn.init.normal_(model.get_submodule("network.shift" if settings else "shift").weight)
    together = model(rows)
    single = torch.cat([model({name: values[row : row + 1] for name, values in rows.items()}) for row in range(5)])
    torch.testing.assert_close(single, together)
    assert tasks[1].details() is not None and tasks[1].history is PAST


WORDS = TensorColumn(name="terms", dtype="int32", shape=(6, 2), cardinality=30, counted=True)
OTHER = TensorColumn(name="other", dtype="float32", shape=(5, SERIES))
IMAGE = TensorColumn(name="image", dtype="uint8", shape=(1, 3, 3))


@pytest.mark.parametrize("column", [WORDS, OTHER, IMAGE], ids=lambda column: column.name)
def test_columns_that_are_no_values_of_a_row_are_named(column: TensorColumn) -> None:
    with pytest.raises(ConfigError, match=rf"beside numbers, categories and vectors of the row, but got .*{column.name} \("):
        create_task((column, *BESIDE))
