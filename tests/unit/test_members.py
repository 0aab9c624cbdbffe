"""Networks that share most of their weights, in the task `tabular`: what they learn from, and what they predict together."""

import warnings
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import Tensor

from pipelines.config.tasks.task import TabularSettings as Settings
from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.model_parallel import Link, Stage
from pipelines.tasks.tabular import Average, Tabular

FEATURES = tuple(TensorColumn(name=name, dtype="float32") for name in ("age", "hours"))
TARGETS = {
    "binary": TensorColumn(name="y", dtype="uint8", role="target", cardinality=2),
    "classes": TensorColumn(name="y", dtype="int64", role="target", cardinality=3),
    "quantity": TensorColumn(name="y", dtype="float32", role="target"),
}


def task(kind: str, **settings: object) -> Tabular:
    return Tabular(Settings.model_validate({"hidden": [8, 8], "members": 3, **settings}), Data((*FEATURES, TARGETS[kind])))


def batch(kind: str) -> Batch:
    return {"age": torch.randn(6), "hours": torch.randn(6), "y": torch.tensor([0, 1, 1, 0, 1, 0]).to(getattr(torch, TARGETS[kind].dtype))}


def predictions(learned: Tabular, output: Tensor) -> Tensor:
    """Probabilities of classes, or the number."""
    columns = learned.predict(output)
    return torch.tensor([values for name, values in columns.items() if name != "prediction"] or [columns["prediction"]])


@pytest.mark.parametrize("kind", TARGETS)
def test_the_loss_is_the_mean_of_the_members_and_the_prediction_their_average(kind: str) -> None:
    torch.manual_seed(0)
    learned, rows = task(kind), batch(kind)
    model = learned.model()
    every = model(rows)
    assert every.shape == (6, 3, learned.outputs)
    loss, weight = learned.loss(model, rows)
    member_losses = [learned.target.losses(every[:, member], rows["y"]).sum() for member in range(3)]
    torch.testing.assert_close(loss, torch.stack(member_losses).mean())
    assert weight == 6 and len({loss_of_member.item() for loss_of_member in member_losses}) == 3
    assert learned.loss(model, {name: values[:0] for name, values in rows.items()})[0] == 0
    together = predictions(learned, model.eval()(rows))
    torch.testing.assert_close(together, torch.stack([predictions(learned, every[:, member]) for member in range(3)]).mean(0))


def test_members_share_the_weights_of_hidden_layers() -> None:
    weights = {name: values.numel() for name, values in task("binary").model().named_parameters()}
    alone = {name: values.numel() for name, values in task("binary", members=1).model().named_parameters()}
    assert {name: size for name, size in weights.items() if "shared" in name} == {
        "layers.0.shared.weight": 16,
        "layers.2.shared.weight": 64,
    }
    assert sum(alone.values()) == 24 + 72 + 9
    assert sum(weights.values()) == 16 + 64 + 3 * (2 + 8 + 8 + 8 + 8 + 8) + 3 * 9


def test_each_member_is_a_network_of_its_own() -> None:
    torch.manual_seed(0)
    learned, rows = task("quantity"), batch("quantity")
    model = learned.model()
    first, second, last = (layer for layer in model.layers if next(layer.parameters(), None) is not None)
    values = torch.stack([rows["age"], rows["hours"]], dim=1)
    for member in range(3):
        hidden = values
        for layer in (first, second):
            weight = layer.shared.weight * layer.outputs[member][:, None] * layer.inputs[member]
            hidden = (hidden @ weight.T + layer.biases[member]).relu()
        torch.testing.assert_close(model(rows)[:, member], hidden @ last.weights[member] + last.biases[member])
    assert set(first.inputs.flatten().tolist()) == {-1, 1} and set(second.inputs.flatten().tolist()) == {1}


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_an_exported_average_of_confident_members_is_finite(kind: str, tmp_path: Path) -> None:
    learned = task(kind)
    average = Average(learned.target.average).eval()
    outputs = torch.tensor([[17.0, 25.0, 19.0], [-30.0, -100.0, -40.0], [120.0, 150.0, 130.0], [0.5, -2.0, 0.0]]).unsqueeze(2)
    outputs = outputs * torch.ones(learned.outputs) - torch.arange(learned.outputs) * 40.0
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(average, (outputs,), tmp_path / "average.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "average.onnx")
    (exported,) = session.run(None, {session.get_inputs()[0].name: outputs.numpy()})
    torch.testing.assert_close(torch.from_numpy(exported), average(outputs))
    assert average(outputs).isfinite().all()


def test_what_stages_send_each_other_is_contiguous() -> None:
    learned, rows = task("classes"), batch("classes")
    *_, last = learned.stages(learned.model(), 3)
    hidden = torch.randn(6, 3, 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(last(hidden, rows).square().sum(), hidden)
    assert gradient.is_contiguous()
    flipped = Stage([Link(lambda hidden, batch: hidden.transpose(0, 1))])
    assert flipped(hidden, rows).is_contiguous()


def test_batch_norm_is_for_one_network() -> None:
    with pytest.raises(ValueError, match="members is 3, but batch_norm is true, which is for one network; set members to 1"):
        task("binary", batch_norm=True)
