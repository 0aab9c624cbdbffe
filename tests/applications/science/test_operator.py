"""The Fourier neural operator: its layers are torch's FFT, its loss that of each row, its metrics in the units of the query."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.applications.science.field_details import RepeatFeature
from pipelines.applications.science.settings import OperatorSettings
from pipelines.applications.science.task import FourierLayer, Operator
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import ROW_NUMBERS, TensorColumn
from pipelines.errors import ConfigError, DatasetError
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.svg_figures import draw_figures
from pipelines.tasks.answers import find_answer
from pipelines.tasks.base import Batch, Data

pytestmark = pytest.mark.usefixtures("one_thread")


def column(name: str, *shape: int, role: Any = "feature") -> TensorColumn:
    return TensorColumn(name=name, dtype="float32", shape=shape, role=role)


COLUMNS = (column("initial", 16), column("viscosity"), column("final", 16, role="target"))
PLANE = (column("initial", 8, 10, 2), column("final", 8, 10, role="target"))


def task(*columns: TensorColumn, data: Any = None, **settings: Any) -> Operator:
    columns = columns or COLUMNS
    values = {"kind": "operator", "modes": 4, "width": 6, "layers": 2, "axes": len(columns[-1].shape), **settings}
    return Operator(OperatorSettings.model_validate(values), Data(columns, **(data or {})))


def random_rows(operator: Operator, rows: int = 5) -> Batch:
    generator = torch.Generator().manual_seed(2)
    return {part.name: torch.randn((rows, *part.shape), generator=generator) for part in operator.data.columns}


@pytest.mark.parametrize(("grid", "modes"), [((16,), 8), ((15,), 3), ((8, 10), 3), ((8, 8), 4)])
def test_a_layer_multiplies_the_lowest_modes_of_the_fft(grid: tuple[int, ...], modes: int) -> None:
    torch.manual_seed(0)
    layer, values = FourierLayer(3, grid, modes), torch.randn(2, *grid, 3)
    axes = tuple(range(1, len(grid) + 1))
    spectrum = torch.fft.rfftn(values, dim=axes)
    frequencies: Any = [torch.arange(-modes, modes) % points for points in grid[:-1]] + [torch.arange(modes)]
    places = (slice(None), *torch.meshgrid(*frequencies, indexing="ij"))
    weights = torch.complex(layer.real, layer.imaginary).reshape(*map(len, frequencies), 3, 3)
    filtered = torch.zeros_like(spectrum)
    filtered[places] = torch.einsum("r...i,...io->r...o", spectrum[places], weights)
    torch.testing.assert_close(layer._filter(values), torch.fft.irfftn(filtered, grid, dim=axes), rtol=1e-4, atol=1e-5)


def test_weights_and_their_gradients_are_real_numbers() -> None:
    operator = task()
    model = operator.model()
    loss, _ = operator.loss(model, random_rows(operator))
    loss.backward()
    parameters = list(model.parameters())
    assert all(not parameter.is_complex() and parameter.grad is not None for parameter in parameters)
    assert sum(bool(parameter.grad.abs().max() > 0) for parameter in parameters if parameter.grad is not None) == len(parameters)


@pytest.mark.parametrize("coordinates", [False, True])
def test_without_coordinates_a_shift_of_the_features_shifts_the_prediction(coordinates: bool) -> None:
    operator = task(coordinates=coordinates)
    model, rows = operator.model(), random_rows(operator)
    shifted = {**rows, "initial": rows["initial"].roll(3, 1)}
    is_same = torch.allclose(model(shifted), model(rows).roll(3, 1), atol=1e-5)
    assert is_same is not coordinates


@pytest.mark.parametrize("operator", [task(), task(*PLANE), task(column("a", 16), column("b", 16, 3, role="target"), axes=1)])
def test_the_loss_is_a_sum_over_rows_and_that_of_the_definition(operator: Operator) -> None:
    model, rows = operator.model(), random_rows(operator)
    target = operator.target.name
    loss, weight = operator.loss(model, rows)
    predicted, true = model(rows).reshape(rows[target].shape).detach().numpy(), rows[target].numpy()
    ratios = [
        np.linalg.norm((prediction - truth).ravel()) / np.linalg.norm(truth.ravel())
        for prediction, truth in zip(predicted, true, strict=True)
    ]
    assert loss.item() == pytest.approx(sum(ratios), rel=1e-5) and weight == 5
    parts = [operator.loss(model, {name: values[part] for name, values in rows.items()})[0] for part in (slice(0, 2), slice(2, 5))]
    assert (parts[0] + parts[1]).item() == pytest.approx(loss.item(), rel=1e-6)


def test_metrics_are_in_the_units_of_the_query() -> None:
    operator = task(data={"decode": lambda values: 10 * values + 3})
    rows = random_rows(operator)
    output, metrics = operator.model()(rows).detach(), operator.metrics()
    operator.update(metrics, output, rows)
    predicted, true = (10 * values.detach().double().reshape(5, 16).numpy() + 3 for values in (output, rows["final"]))
    relative = np.linalg.norm(predicted - true, axis=1) / np.linalg.norm(true, axis=1)
    measured = {name: float(value) for name, value in metrics.compute().items()}
    assert measured["relative_l2"] == pytest.approx(relative.mean()) and measured["mse"] == pytest.approx(((predicted - true) ** 2).mean())
    encoded = rows["final"].double()
    losses = (output.double().reshape(5, 16) - encoded).norm(dim=1) / encoded.norm(dim=1)
    assert measured["loss"] == pytest.approx(float(losses.mean())) != pytest.approx(measured["relative_l2"])
    np.testing.assert_allclose(operator.predict(output)["prediction"], predicted)


@pytest.mark.parametrize("columns", [COLUMNS, PLANE])
def test_an_export_s_script_answers_as_the_model(columns: tuple[TensorColumn, ...]) -> None:
    scale = {"encoder": "scale", "shape": [16], "mean": [3.0], "deviation": [2.0]}
    fitted = FittedEncoder(feature=scale, inputs=("final",), state={}, column=columns[-1])
    operator = task(*columns, data={"encoders": {"final": fitted}, "decode": lambda values: values * 2.0 + 3.0})
    output, form = operator.model()(random_rows(operator)).detach(), operator.prediction_form()
    assert find_answer(form)(output.numpy(), json.loads(json.dumps(form)), operator.data.decode) == operator.predict(output)


def test_a_row_that_is_zero_has_no_relative_error() -> None:
    operator = task()
    rows = random_rows(operator)
    rows["final"][2] = 0
    for judge in (lambda: operator.loss(operator.model(), rows), lambda: operator.update(operator.metrics(), rows["final"], rows)):
        with pytest.raises(
            DatasetError, match="a row of final is 0 at every point, or too near to it for float32, so it has no relative error"
        ):
            judge()


def test_a_feature_unchanged_and_the_mean_are_to_be_beaten() -> None:
    scales = {"raw": lambda name, values: 4 * values + 1, "decode": lambda values: 2 * values - 1}
    operator = task(data=scales)
    rows = random_rows(operator)
    mean, unchanged = operator.trivial_predictors()
    assert isinstance(unchanged, RepeatFeature)
    for part in (slice(0, 2), slice(2, 5)):
        mean.fit({name: values[part] for name, values in rows.items()})
    mean.finish()
    torch.testing.assert_close(mean.output(rows), rows["final"].double().mean(0).expand(5, -1))
    torch.testing.assert_close(2 * unchanged.output(rows) - 1, 4 * rows["initial"].double() + 1)
    assert [predictor.name for predictor in task(*PLANE).trivial_predictors()] == ["mean"], "no feature has the target's shape"


@pytest.mark.parametrize("columns", [COLUMNS, PLANE, (column("number"), column("final", 16, role="target"))])
def test_the_page_shows_functions_with_their_truth(columns: tuple[TensorColumn, ...]) -> None:
    operator = task(*columns)
    details, rows = operator.details(), {**random_rows(operator), ROW_NUMBERS: torch.arange(5)}
    details.update(operator.model()(rows).detach(), rows)
    result = details.result("test", {"relative_l2": 0.5})
    assert result.summary["kind"] == "fields" and result.summary["rows"] == 5
    table = result.tables["worst_fields"]
    assert len(set(table["row"])) == 4 and list(table["relative_l2"]) == sorted(table["relative_l2"], reverse=True)
    figures = draw_figures(SplitEvaluation("test", result.summary, result.tables))
    assert [(figure.name, bool(figure.svg)) for figure in figures] == [("fields", True), ("worst_fields", True)]


@pytest.mark.parametrize(
    ("columns", "settings"),
    [
        ((column("initial", 16), column("final", 12, role="target")), {}),
        ((column("initial", 8, 8), column("final", 8, 8, 2, role="target")), {"axes": 1}),
        ((column("initial", 16), column("final", 16, role="target")), {"axes": 2}),
        ((column("initial", 16), column("final", role="target")), {"axes": 1}),
    ],
)
def test_shapes_that_are_no_grid_are_named(columns: tuple[TensorColumn, ...], settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"task.kind is operator, which takes functions on one grid of \d ax.*but got initial \("):
        task(*columns, **settings)


def test_more_modes_than_half_the_points_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"task\.modes is 9, but final has 16 points along an axis; set it to 8 or less"):
        task(modes=9)
    assert task(modes=8).model()(random_rows(task())).shape == (5, 16, 1)


def test_bf16_keeps_the_digits_of_the_modes() -> None:
    operator = task()
    model, rows = operator.model(), random_rows(operator)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(rows)
    exact = model(rows)
    assert rounded.isfinite().all() and ((rounded - exact).norm() / exact.norm()).item() < 0.02
