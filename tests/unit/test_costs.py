"""Costs counted from a pass, against formulas, against a pass with values, and against what torch reports."""

import pytest
from task_cases import CASES, create_task, random_batch
from torch import nn

from pipelines.config import load
from pipelines.costs.config_costs import config_costs
from pipelines.costs.layers import model_costs
from pipelines.costs.operators import CountedPass, RecordedPass, count_pass, record
from pipelines.errors import ConfigError
from pipelines.planning.model_costs import ModelCosts
from pipelines.planning.transformer import Transformer, transformer_costs

NEEDS_VALUES = {"detection", "operator", "series", "next_item"}
"""Tasks whose control flow, or the shape of a tensor, depends on values."""


def count_task(name: str, rows: int = 16, has_rows: bool = True) -> CountedPass:
    task = create_task(name)
    return count_pass(lambda: create_task(name), rows, (lambda count: random_batch(task, count)) if has_rows else None)


def count_costs(name: str, rows: int = 16) -> ModelCosts:
    return model_costs(name, count_task(name, rows))


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_task_is_counted(name: str) -> None:
    costs = count_costs(name)
    assert costs.parameters == sum(parameter.numel() for parameter in create_task(name).model().parameters())
    assert all(0 <= layer.undivided <= 1 for layer in costs.layers)
    assert sum(layer.kernels for layer in costs.layers) > 0
    assert sum(layer.activations.none for layer in costs.layers) > 0


@pytest.mark.parametrize("name", sorted(set(CASES) - NEEDS_VALUES))
def test_a_pass_without_values_counts_what_one_with_values_does(name: str) -> None:
    def figures(recorded: RecordedPass) -> tuple[float, float]:
        return sum(operator.flops for operator in recorded.operators), sum(size for _, size in recorded.kept_tensors.values())

    task = create_task(name)
    with_values = record(task, task.model().train(), random_batch(task, 16))
    flops, kept_bytes = figures(count_task(name, has_rows=False).recorded)
    assert flops == figures(with_values)[0]
    assert kept_bytes == pytest.approx(figures(with_values)[1], rel=0.1)


@pytest.mark.parametrize("name", sorted(NEEDS_VALUES))
def test_a_model_that_needs_values_is_counted_with_rows_only(name: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be counted without values.*make the dataset version with jobs/etl.py first"):
        count_task(name, has_rows=False)
    assert model_costs(name, count_task(name)).parameters > 0


def test_costs_per_row_do_not_depend_on_the_rows_of_the_pass() -> None:
    few, many = count_costs("tabular", 64), count_costs("tabular", 512)
    assert few.model_flops == many.model_flops
    assert sum(layer.activations.none for layer in few.layers) == pytest.approx(
        sum(layer.activations.none for layer in many.layers), rel=0.1
    )


def test_products_of_a_perceptron_are_its_linear_layers() -> None:
    (layer,) = count_costs("tabular of a quantity").layers
    linear = [module for module in create_task("tabular of a quantity").model().modules() if isinstance(module, nn.Linear)]
    assert [(product.inputs, product.outputs) for product in layer.matmuls] == [
        (module.in_features, module.out_features) for module in linear
    ]
    assert all(product.positions == 1 for product in layer.matmuls)


def test_a_language_model_costs_what_formulas_of_its_shape_say() -> None:
    config = load("conf/gpt2.yaml")
    counts = config_costs(config)
    shape = Transformer(layers=12, width=768, heads=12, kv_heads=12, mlp=3_072, vocabulary=25_600, sequence=1_024)
    formulas = transformer_costs(shape, "gpt2")
    assert counts.units_per_row == 1_024 and counts.positions == 1_024
    assert counts.model_flops == pytest.approx(formulas.model_flops, rel=1e-6)
    assert counts.parameters == pytest.approx(formulas.parameters, rel=0.001)
    block, expected = (next(layer for layer in costs.layers if layer.role == "block") for costs in (counts, formulas))
    assert block.count == expected.count
    assert block.attention_flops == expected.attention_flops and block.attention_computed == 0.5
    sums = [message.direction for message in block.tensor_messages]
    assert sorted(sums) == ["backward", "backward", "forward", "forward"]
    assert [product.divided_by for product in block.matmuls] == ["outputs", "inputs", "outputs", "inputs"]
    for kind in ("compiled", "none", "selective", "full"):
        assert getattr(block.activations, kind) == pytest.approx(getattr(expected.activations, kind), rel=0.5)
    assert block.fused_bytes == pytest.approx(expected.fused_bytes, rel=0.2)
    assert ("heads", 12) in counts.tensor_divides


def test_trees_are_refused() -> None:
    with pytest.raises(ConfigError, match="task trees of adult_trees has no parameters that gradients train"):
        config_costs(load("conf/adult_trees.yaml"))
