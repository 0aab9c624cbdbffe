"""The networks: which inputs they take, how large they are, and that they can learn."""

from dataclasses import replace

import pytest
import torch

from pipelines.config.tasks.task import TabularSettings, VisionSettings
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.tabular import Tabular
from pipelines.tasks.vision import Vision

pytestmark = pytest.mark.usefixtures("one_thread")

LABEL = TensorColumn(name="label", dtype="int64", role="target", cardinality=10)
MIXED = (
    TensorColumn(name="age", dtype="float32"),
    TensorColumn(name="type", dtype="int32", cardinality=16),
    TensorColumn(name="place", dtype="float32", shape=(2, 3)),
    TensorColumn(name="married", dtype="uint8", cardinality=2),
    TensorColumn(name="count", dtype="int64"),
    TensorColumn(name="words", dtype="int32", shape=(5,), cardinality=81),
    LABEL,
)


def mixed_batch(rows: int) -> Batch:
    return {column.name: torch.randint(column.cardinality or 2, (rows, *column.shape)).to(getattr(torch, column.dtype)) for column in MIXED}


def images(shape: tuple[int, ...], rows: int) -> Batch:
    return {"image": torch.randint(256, (rows, *shape), dtype=torch.uint8), "label": torch.randint(10, (rows,))}


def vision(shape: tuple[int, ...], classes: int = 10, **settings: object) -> Vision:
    label = replace(LABEL, cardinality=classes)
    data = Data((TensorColumn(name="image", dtype="uint8", shape=shape), label))
    return Vision(VisionSettings.model_validate({"kind": "vision", **settings}), data)


def parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("settings", [{}, {"hidden": []}, {"hidden": [8, 4], "batch_norm": True, "dropout": 0.5}])
@pytest.mark.parametrize("rows", [0, 7])
def test_tabular_takes_any_mix_of_columns(settings: dict[str, object], rows: int) -> None:
    model = Tabular(TabularSettings.model_validate({"kind": "tabular", **settings}), Data(MIXED)).model().eval()
    assert model(mixed_batch(rows)).shape == (rows, 10)


def test_indices_are_embedded_and_numbers_taken_as_they_are() -> None:
    model = Tabular(TabularSettings(kind="tabular", hidden=()), Data(MIXED)).model()
    width = 1 + 8 + 6 + 1 + 1 + 5 * 12  # four times the fourth root of 16 and of 81
    assert parameters(model) == 16 * 8 + 81 * 12 + (width + 1) * 10


def test_embeddings_of_a_given_width() -> None:
    model = Tabular(TabularSettings(kind="tabular", hidden=(), embedding=3), Data(MIXED)).model()
    assert parameters(model) == 16 * 3 + 81 * 3 + (1 + 3 + 6 + 1 + 1 + 5 * 3 + 1) * 10


def test_no_hidden_layer_is_linear_regression() -> None:
    torch.manual_seed(0)
    columns = (TensorColumn(name="x", dtype="float32", shape=(3,)), TensorColumn(name="y", dtype="float32", role="target"))
    task = Tabular(TabularSettings(kind="tabular", hidden=()), Data(columns))
    model, x = task.model(), torch.randn(200, 3)
    batch = {"x": x, "y": x @ torch.tensor([1.0, -2.0, 0.5]) + 3}
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=50)

    def closure() -> float:
        optimizer.zero_grad()
        total, weight = task.loss(model, batch)
        (total / weight).backward()
        return (total / weight).item()

    optimizer.step(closure)
    assert [value for parameter in model.parameters() for value in parameter.flatten().tolist()] == pytest.approx([1, -2, 0.5, 3], abs=1e-3)


@pytest.mark.parametrize(
    ("shape", "flat"), [((1, 8, 8), 256), ((1, 28, 28), 3_136), ((28, 28), 3_136), ((3, 224, 224), 200_704), ((1, 5, 7), 256)]
)
def test_the_small_network_is_sized_from_the_data(shape: tuple[int, ...], flat: int) -> None:
    model = vision(shape).model().eval()
    channels = shape[0] if len(shape) == 3 else 1
    assert parameters(model) == (9 * channels + 1) * 32 + (9 * 32 + 1) * 64 + (flat + 1) * 128 + 129 * 10
    assert model(images(shape, 2)).shape == (2, 10)
    assert model(images(shape, 0)).shape == (0, 10)


def test_the_resnet_for_small_pictures_has_as_many_parameters_as_its_layers_say() -> None:
    with torch.device("meta"):
        model = vision((3, 32, 32), network="resnet20").model()
    convolutions = 3 * 16 + 6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64
    norms = 2 * (7 * 16 + 7 * 32 + 7 * 64)  # of one more in the stem, and of the shortcuts of the second and third stage
    assert parameters(model) == 9 * convolutions + 16 * 32 + 32 * 64 + norms + 65 * 10


@pytest.mark.parametrize(("network", "count"), [("resnet18", 11_689_512), ("resnet50", 25_557_032)])
def test_resnets_have_the_published_number_of_parameters(network: str, count: int) -> None:
    with torch.device("meta"):
        assert parameters(vision((3, 224, 224), classes=1_000, network=network).model()) == count


@pytest.mark.parametrize("network", ["resnet20", "resnet18", "resnet50"])
def test_resnets_take_small_images_and_large(network: str) -> None:
    for shape in ((1, 28, 28), (3, 96, 64)):
        assert vision(shape, network=network).model().eval()(images(shape, 2)).shape == (2, 10)


def test_bytes_and_floats_of_the_same_image_agree() -> None:
    batch = images((1, 8, 8), 3)
    model = vision((1, 8, 8)).model().eval()
    torch.testing.assert_close(model(batch), model({"image": batch["image"].float() / 255}))


@pytest.mark.parametrize("network", ["small", "resnet18"])
def test_a_few_steps_lower_the_loss(network: str) -> None:
    torch.manual_seed(0)
    task, batch = vision((1, 8, 8), network=network), images((1, 8, 8), 32)
    batch["image"] = batch["image"] // 8 + (22 * batch["label"]).to(torch.uint8)[:, None, None, None]  # a class is a brightness
    model = task.model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        total, weight = task.loss(model, batch)
        (total / weight).backward()
        optimizer.step()
        losses.append(total.item())
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("network", ["small", "resnet20", "resnet18", "resnet50"])
def test_weights_have_the_layout_of_their_gradients_and_the_one_that_safetensors_takes(network: str) -> None:
    task = vision((1, 8, 8), network=network)
    model = task.model()
    task.loss(model, images((1, 8, 8), 2))[0].backward()
    assert all(parameter.is_contiguous() for parameter in model.parameters())
    assert [parameter.stride() for parameter in model.parameters()] == [parameter.grad.stride() for parameter in model.parameters()]


@pytest.mark.parametrize("columns", [MIXED, (TensorColumn(name="age", dtype="float32"), LABEL)])
def test_vision_takes_one_image_column(columns: tuple[TensorColumn, ...]) -> None:
    with pytest.raises(ConfigError, match=r"vision, which takes one image column, .* but got age \(\)"):
        Vision(VisionSettings(kind="vision"), Data(columns))
