"""Optimizer `muon`: which parameters are matrices of hidden layers, and how each kind changes."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.optim import AdamW

from pipelines.applications.language.network import GPT, TokenVocabulary
from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.train.initial_model import check_fine_tuning
from pipelines.train.optimizers import MATRICES, Muon, hidden_matrices, parameter_groups
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = pytest.mark.usefixtures("one_thread")

BLOCKS = {"blocks.0.attention.qkv.weight", "blocks.0.attention.outputs.weight", "blocks.0.narrow.weight", "blocks.0.wide.weight"}


def settings(**changes: Any) -> Train:
    return Train.model_validate({"optimizer": "muon", **changes})


class Network(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))


class Squares:
    """The part of a task that a strategy calls."""

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return Network()

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return (model(batch["x"])[:, 0] - batch["label"]).square().sum(), torch.tensor(float(len(batch["x"])))


def rows() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {"x": torch.randn(32, 12, generator=generator), "label": torch.randn(32, generator=generator)}


@pytest.mark.parametrize(("tied", "cutoffs"), [(False, ()), (True, ()), (False, (10, 20)), (True, (10, 20))])
def test_embeddings_and_heads_are_no_hidden_matrices(tied: bool, cutoffs: tuple[int, ...]) -> None:
    model = GPT(TokenVocabulary(40, tied, cutoffs), context=6, layers=1, heads=2, width=16, dropout=0.0)
    matrices = hidden_matrices(model)
    names = {name for name, parameter in model.named_parameters() if parameter in matrices}
    # A head that is the embedding alone is no linear layer, so that the last one is in the block.
    assert names == (BLOCKS - {"blocks.0.narrow.weight"} if tied and not cutoffs else BLOCKS)


def test_changes_of_matrices_are_orthogonal_and_those_of_others_are_adamw_s() -> None:
    model, plain = Squares().model(), Squares().model()
    optimizer = Muon(parameter_groups(settings(), model), 0.1, 0.0)  # type: ignore[arg-type]
    alone = AdamW(plain.parameters(), 0.1, weight_decay=0.0)
    for network, steps in ((model, optimizer), (plain, alone)):
        total, weight = Squares().loss(network, rows())
        (total / weight).backward()
        steps.step()
    before, weights = Squares().model().state_dict(), model.state_dict()
    for name, values in plain.state_dict().items():
        if name in ("0.weight", "2.weight"):
            sizes = torch.linalg.svdvals(weights[name] - before[name]) / (0.1 * 0.2 * max(values.shape) ** 0.5)
            assert sizes.median() > 0.6 and sizes.max() < 1.3
        else:
            torch.testing.assert_close(weights[name], values)


@pytest.mark.parametrize("strategy", ["ddp", {"kind": "exact"}])
def test_a_state_continues_elsewhere(strategy: Any) -> None:
    def create() -> Any:
        return create_strategy(settings(strategy=strategy, shards=1, lr_factors={"2.*": 0.5}), Squares(), WorkerContext())  # type: ignore[arg-type]

    batch: Any = rows() if strategy == "ddp" else [rows()]
    first, second = create(), create()
    first.step(batch, 0, 0.01, Flags())
    second.load_state_dict(deepcopy(first.state_dict()))
    for copy in (first, second):
        copy.step(batch, 1, 0.01, Flags())
    for name, values in first.model.state_dict().items():
        assert torch.equal(values, second.model.state_dict()[name]), name


def test_groups_have_their_factors_and_frozen_parameters_have_none() -> None:
    train = settings(lr_factors={"2.*": 0.5}, freeze=["0.*"])
    model = Network()
    check_fine_tuning(train, model)
    groups = parameter_groups(train, model)
    assert [(group["lr_factor"], group[MATRICES], len(group["params"])) for group in groups] == [  # type: ignore[index,call-overload]
        (0.5, True, 1),
        (0.5, False, 1),
        (1.0, False, 2),
    ]


@pytest.mark.parametrize("changes", [{"freeze": ["0.*", "2.*"]}, {"freeze": ["[02].weight"]}, {"lora": {"rank": 2, "targets": ["[02]"]}}])
def test_a_model_without_a_matrix_to_train_is_one_line(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="optimizer is muon, which changes matrices of linear layers before"):
        check_fine_tuning(settings(**changes), Network())
    check_fine_tuning(settings(**changes, optimizer="adamw"), Network())


def test_a_weight_that_is_computed_from_others_is_no_matrix() -> None:
    model = Network()
    vectors = spectral_norm(model[0]).parametrizations.weight[0]._u.clone()
    assert hidden_matrices(model) == {model[2].weight}
    assert torch.equal(model[0].parametrizations.weight[0]._u, vectors), "to read the weight would change its vectors"
    train = settings(lora={"rank": 2, "targets": ["2"]})
    with pytest.raises(ConfigError, match="and the model trains none; set it to adamw"):
        check_fine_tuning(train, model)
    check_fine_tuning(train, Network())


@pytest.mark.parametrize("strategy", [{"kind": "sharded"}, {"kind": "parameter_server", "servers": 1}])
def test_a_strategy_that_divides_matrices_refuses(strategy: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"optimizer is muon, which needs whole matrices, and strategy .* divides them; set it to adamw"):
        settings(strategy=strategy)
    settings(strategy=strategy, optimizer="adamw")
