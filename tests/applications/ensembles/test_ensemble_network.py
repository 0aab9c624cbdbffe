"""The module of an ensemble: what it averages, for each kind of target, and what it needs of members that are not used."""

from typing import Any

import numpy as np
import pytest
import torch
from task_cases import CASES, create_task, random_batch
from test_target_kinds import ROWS, make_case

from pipelines.applications.ensembles.network import EnsembleNetwork
from pipelines.applications.ensembles.settings import EnsembleSettings
from pipelines.applications.ensembles.task import Ensemble
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Data, Task
from pipelines.tasks.supervised import Supervised

NUMBERS = tuple(TensorColumn(name=name, dtype="float32") for name in ("age", "hours"))
TABLES = [
    {"kind": "tabular", "hidden": [4]},
    {"kind": "tabular", "hidden": [8], "members": 2},
    {"kind": "trees"},
    {"kind": "tabular", "hidden": []},
]
"""Members for tables: a perceptron, several in one, trees, and a linear model."""
TARGETS = {
    "binary": TensorColumn(name="y", dtype="uint8", role="target", cardinality=2),
    "classes": TensorColumn(name="y", dtype="int64", role="target", cardinality=3),
    "quantity": TensorColumn(name="y", dtype="float32", role="target"),
}
SHARES = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)


def make_ensemble(data: Data, members: list[dict[str, Any]], **settings: Any) -> Ensemble:
    recorded = [{"run": f"run{number}", "digest": "ab", "task": task} for number, task in enumerate(members)]
    values = {"of": [f"run{number}" for number in range(len(members))], "members": recorded, **settings}
    return Ensemble(EnsembleSettings.model_validate(values), data)


def make_network(ensemble: Ensemble, seed: int = 0) -> EnsembleNetwork:
    """A network of members whose outputs differ. Trees are one leaf each."""
    torch.manual_seed(seed)
    network = ensemble.model()
    assert isinstance(network, EnsembleNetwork)
    for name, values in network.named_buffers():
        if name.endswith(".bias"):
            values.copy_(torch.randn(values.shape))
    return network.eval()


def predictions(task: Task, output: torch.Tensor) -> np.ndarray:
    """Probabilities of classes, or numbers, shape (columns, rows)."""
    columns = {name: values for name, values in task.predict(output).items() if not isinstance(values[0], str)}
    return np.array([columns[name] for name in columns if name != "prediction" or len(columns) == 1])


@pytest.mark.parametrize("kind", TARGETS)
def test_it_predicts_the_mean_of_what_its_members_predict(kind: str) -> None:
    ensemble = make_ensemble(Data((*NUMBERS, TARGETS[kind])), TABLES)
    network, batch = make_network(ensemble), {"age": torch.randn(9), "hours": torch.randn(9)}
    network.choose([2, 0, 1, 1])
    with torch.no_grad():
        together = predictions(ensemble, network(batch))
        alone = [predictions(task, member(batch)) for task, member in zip(ensemble.members, network.members, strict=True)]
    np.testing.assert_allclose(together, 0.5 * alone[0] + 0.25 * alone[2] + 0.25 * alone[3], atol=1e-6)


@pytest.mark.parametrize("kind", ["poisson", "negative_binomial", "ordinal", "labels", "numbers"])
def test_shares_count_in_averages_of_every_kind(kind: str) -> None:
    """As often as a model with four times the share would, were it repeated."""
    case = make_case(kind)
    outputs = torch.randn(ROWS, 3, case.task.outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    average = case.task.target.average(outputs, SHARES)
    torch.testing.assert_close(average, case.task.target.average(outputs[:, [0, 0, 1, 2]]))
    torch.testing.assert_close(case.task.target.average(outputs), case.task.target.average(outputs, torch.full((3,), 1 / 3).double()))


def test_members_of_two_classes_are_averaged_as_their_runs_calibrate_them() -> None:
    ensemble = make_ensemble(Data((*NUMBERS, TARGETS["binary"])), TABLES[:2])
    network, batch = make_network(ensemble), {"age": torch.randn(9), "hours": torch.randn(9)}
    assert network.calibration is not None
    network.calibration.copy_(torch.tensor([[2.0, 0.5], [0.5, -1.0]]))
    with torch.no_grad():
        first, second = (member(batch) for member in network.members)
        mean = ((2 * first + 0.5).sigmoid() + (0.5 * second - 1).sigmoid()) / 2
        torch.testing.assert_close(network(batch).sigmoid(), mean)


def test_weights_of_members_that_are_not_used_are_left_out() -> None:
    ensemble = make_ensemble(Data((*NUMBERS, TARGETS["classes"])), TABLES)
    network, batch = make_network(ensemble), {"age": torch.randn(9), "hours": torch.randn(9)}
    network.choose([0, 3, 0, 1])
    weights = network.weights()
    assert {name.split(".")[1] for name in weights if name.startswith("members")} == {"1", "3"}
    loaded = make_network(ensemble, seed=1)
    loaded.load_state_dict(weights)
    with torch.no_grad():
        torch.testing.assert_close(loaded(batch), network(batch), rtol=0, atol=0)
    assert loaded.weights().keys() == weights.keys()


def test_an_ensemble_may_be_a_member() -> None:
    data = Data((*NUMBERS, TARGETS["quantity"]))
    inner = make_ensemble(data, TABLES[:2])
    ensemble = make_ensemble(data, [inner.settings.model_dump(mode="json"), TABLES[3]])
    network, batch = make_network(ensemble), {"age": torch.randn(9), "hours": torch.randn(9)}
    network.members[0].choose([0, 1])  # type: ignore[operator]
    used = {name: values for name, values in network.weights().items() if not name.startswith("members.0.members.0.")}
    loaded = make_network(ensemble, seed=1)
    loaded.load_state_dict(used)
    with torch.no_grad():
        torch.testing.assert_close(loaded(batch), network(batch), rtol=0, atol=0)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.full if name == "huggingface" else ()) for name in CASES])
def test_every_task_with_a_target_has_ensembles(name: str) -> None:
    task = create_task(name)
    ensemble = make_ensemble(task.data, [task.settings.model_dump(mode="json")] * 2) if isinstance(task, Supervised) else None
    if ensemble is None:
        with pytest.raises(ConfigError, match=f"task.of has run run0 of kind {task.settings.kind}, whose outputs have no average; name"):
            _ = make_ensemble(Data((*NUMBERS, TARGETS["binary"]), encoders={}), [task.settings.model_dump(mode="json")] * 2).members
        return
    network, batch = make_network(ensemble), random_batch(task, 5)
    with torch.no_grad():
        average = task.target.average(torch.stack([member(batch) for member in network.members], 1))
        torch.testing.assert_close(network(batch), average)


def test_its_graph_is_exported() -> None:
    ensemble = make_ensemble(Data((*NUMBERS, TARGETS["binary"])), TABLES)
    network, batch = make_network(ensemble), {"age": torch.randn(9), "hours": torch.randn(9)}
    network.choose([1, 2, 1, 0])
    rows = torch.export.Dim("rows", min=2)
    shapes = ({name: {0: rows} for name in batch},)
    with torch.no_grad():
        graph = torch.export.export(network, (batch,), dynamic_shapes=shapes)
        more = {name: torch.randn(5) for name in batch}
        torch.testing.assert_close(graph.module()(more), network(more))
