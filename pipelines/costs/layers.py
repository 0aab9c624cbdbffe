"""Costs of a model's layers, from the recorded operators of a pass: what comes before the blocks, the blocks, and what comes after."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from torch import nn

from pipelines.costs.operators import CountedPass, RecordedOperator, RecordedPass
from pipelines.planning.model_costs import Activations, Layer, Matmul, ModelCosts, TensorMessage
from pipelines.runtime.compat.torch import BatchNorm
from pipelines.tasks.base import Task
from pipelines.tasks.model_parallel import LayerPlan

_DIVIDED: Mapping[str, Literal["outputs", "inputs"]] = {
    "columns": "outputs",
    "gathered columns": "outputs",
    "logits": "outputs",
    "rows": "inputs",
}
"""What `tensor` divides of a product, by the plan of its module."""


@dataclass(frozen=True)
class _Section:
    """Consecutive operators that make up a layer."""

    name: str
    role: Literal["input", "block", "output"]
    number: int
    """Of the block; -1 before the first, and the number of blocks after them."""


_FP32_BYTES, _COST_BYTES = 4, 2
"""Bytes of a number of a counted pass, and of one in `ModelCosts`, which has those of half precision."""


def model_costs(name: str, counted: CountedPass) -> ModelCosts:
    """Costs per row of the model of a counted pass. Equal blocks are one layer."""
    task, model, recorded = counted.task, counted.model, counted.recorded
    plans = _plans_by_module(model, task.parallel_plan(model))
    divisible, blocks = task.divisible_tokens(model), task.blocks(model)
    scale = _COST_BYTES / _FP32_BYTES / recorded.rows
    parameters = _parameters_by_block(model, recorded, blocks)
    reached = _tensors_with_gradient(recorded)
    layers = [_layer(section, recorded, plans, parameters.get(section.number, 0), scale, reached) for section in _sections(recorded)]
    return ModelCosts(
        name,
        tuple(_merge_equal(layers)),
        units_per_row=divisible.count if divisible else 1,
        unit="tokens" if divisible else "rows",
        tensor_divides=tuple(dict.fromkeys(_tensor_units(model, plans))),
        positions=divisible.count if divisible else 0,
        recomputes=bool(blocks) and not any(map(_has_batch_norm, blocks)),
        has_stages=type(task).stages is not Task.stages and not _has_batch_norm(model),
        shares_weights=len(list(model.named_parameters(remove_duplicate=False))) > len(list(model.parameters())),
    )


def _has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(part, BatchNorm) for part in module.modules())


def _plans_by_module(model: nn.Module, plans: Mapping[str, LayerPlan]) -> dict[str, LayerPlan]:
    """The plan of each module that a pattern of the task's plan names."""
    return {name: plan for pattern, plan in plans.items() for name, _ in model.named_modules() if fnmatchcase(name, pattern)}


def _sections(recorded: RecordedPass) -> list[_Section]:
    blocks = sorted(recorded.block_inputs)
    if not blocks:
        return [_Section("model", "block", -1)]
    return [
        _Section("input", "input", -1),
        *(_Section("block", "block", number) for number in blocks),
        _Section("output", "output", len(blocks)),
    ]


def _parameters_by_block(model: nn.Module, recorded: RecordedPass, blocks: Sequence[nn.Module]) -> dict[int, int]:
    """Numbers of parameters, by the block that holds them, or in which their module first ran."""
    places = {module: number for number, block in enumerate(blocks) for module in block.modules()}
    counts: dict[int, int] = {}
    counted = set[int]()
    for name, module in model.named_modules():
        place = places.get(module, recorded.module_blocks.get(name, -1))
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in counted:
                counted.add(id(parameter))
                counts[place] = counts.get(place, 0) + parameter.numel()
    return counts


def _layer(
    section: _Section, recorded: RecordedPass, plans: Mapping[str, LayerPlan], parameters: int, scale: float, with_gradient: Container[int]
) -> Layer:
    operators = [operator for operator in recorded.operators if operator.block == section.number and operator.kind != "view"]
    products = [operator for operator in operators if operator.kind == "product"]
    attention = [operator for operator in operators if operator.kind == "attention"]
    elementwise_operators = [operator for operator in operators if operator.kind == "other"]
    attention_flops = sum(operator.flops for operator in attention)
    computed = sum(operator.flops * (0.5 if operator.is_causal else 1.0) for operator in attention)
    elementwise = sum(_traffic(operator) for operator in elementwise_operators)
    regions = list(_kernel_regions(operators))
    return Layer(
        section.name,
        1,
        parameters,
        tuple(_matmul(operator, plans, recorded.rows) for operator in products),
        section.role,
        attention_flops=attention_flops / recorded.rows,
        attention_computed=computed / attention_flops if attention_flops else 1.0,
        attention_bytes=scale * sum(sum(operator.outputs.values()) for operator in attention),
        key_value_bytes=scale * sum(operator.key_value_bytes for operator in attention),
        elementwise_bytes=scale * elementwise,
        fused_bytes=scale * sum(_boundary_bytes(region, operators) for region in regions),
        undivided=_share_outside_tensor_groups(operators, plans),
        activations=_activations(section, recorded, products + attention, scale),
        working_bytes=scale * max((_traffic(operator, recorded.parameters) for operator in operators), default=0.0),
        fused_working_bytes=scale * max((_traffic(operator, recorded.parameters) for operator in products), default=0.0),
        output_bytes=scale * recorded.block_outputs.get(section.number, 0.0),
        tensor_messages=tuple(_tensor_messages(operators, plans, with_gradient, scale)),
        kernels=len(operators),
        fused_kernels=len(products) + len(attention) + len(regions),
    )


def _tensor_messages(
    operators: Sequence[RecordedOperator], plans: Mapping[str, LayerPlan], with_gradient: Container[int], scale: float
) -> Iterator[TensorMessage]:
    """Messages of workers that divide layers: outputs of divided inputs are summed, as the vectors of an embedding are, and so are
    gradients of whole inputs of divided outputs, but for inputs that no parameter has changed. What a head sends besides, two numbers for
    each token, is left out."""
    for operator in operators:
        by = plans[operator.module].by if operator.module in plans else "whole"
        outputs = scale * sum(operator.outputs.values())
        if by == "rows":
            yield TensorMessage("forward", outputs)
        if by == "gathered columns":
            yield TensorMessage("forward", outputs, "gather")
        if by in ("columns", "gathered columns", "logits") and operator.kind == "product":
            inputs = sum(size for number, size in operator.inputs.items() if number in with_gradient)
            yield from [TensorMessage("backward", scale * inputs)] if inputs else []


def _tensors_with_gradient(recorded: RecordedPass) -> set[int]:
    """Tensors that were computed with parameters, directly or by others."""
    reached = set(recorded.parameters)
    for operator in recorded.operators:
        if not reached.isdisjoint(operator.inputs):
            reached.update(operator.outputs)
    return reached - recorded.parameters


def _matmul(operator: RecordedOperator, plans: Mapping[str, LayerPlan], rows: int) -> Matmul:
    positions, inputs, outputs = operator.shape
    plan = plans.get(operator.module)
    return Matmul(positions / rows, inputs, outputs, _DIVIDED.get(plan.by, "nothing") if plan else "nothing")


def _traffic(operator: RecordedOperator, without: Container[int] = ()) -> float:
    """Bytes that an operator reads and writes, but for some tensors."""
    return sum(size for number, size in operator.inputs.items() if number not in without) + sum(operator.outputs.values())


def _kernel_regions(operators: Sequence[RecordedOperator]) -> Iterator[list[RecordedOperator]]:
    """Runs of elementwise operators between products and attention, each of which a compiler may make one kernel."""
    region: list[RecordedOperator] = []
    for operator in operators:
        if operator.kind == "other":
            region.append(operator)
        elif region:
            yield region
            region = []
    if region:
        yield region


def _boundary_bytes(region: Sequence[RecordedOperator], operators: Sequence[RecordedOperator]) -> float:
    """Bytes that a kernel for the whole region reads and writes: tensors that it takes from others, and those that others take from it."""
    inside = {id(operator) for operator in region}
    outputs = {number: size for operator in region for number, size in operator.outputs.items()}
    reads = {number: size for operator in region for number, size in operator.inputs.items() if number not in outputs}
    used_outside = {number for operator in operators if id(operator) not in inside for number in operator.inputs}
    last = set(region[-1].outputs)
    return sum(reads.values()) + sum(size for number, size in outputs.items() if number in used_outside or number in last)


def _share_outside_tensor_groups(operators: Sequence[RecordedOperator], plans: Mapping[str, LayerPlan]) -> float:
    """The part of elementwise traffic on tensors that a tensor group does not divide: all but what follows from divided outputs."""
    divided = set[int]()
    total = undivided = 0.0
    for operator in operators:
        plan = plans.get(operator.module)
        if operator.kind == "product" and plan is not None:
            divided.update(operator.outputs if plan.by in ("columns", "logits") else ())
            continue
        is_divided = any(number in divided for number in operator.inputs)
        divided.update(operator.outputs if is_divided else ())
        if operator.kind == "other":
            total += _traffic(operator)
            undivided += 0.0 if is_divided else _traffic(operator)
    return undivided / total if total else 1.0


def _activations(section: _Section, recorded: RecordedPass, expensive: Sequence[RecordedOperator], scale: float) -> Activations:
    """Bytes that a layer keeps, by what is computed again: all that autograd keeps; with fused kernels, inputs and outputs of products and
    attention; with `selective`, the layer's input and the outputs of these."""
    kept_sizes = {number: size for number, (block, size) in recorded.kept_tensors.items() if block == section.number}
    none = float(sum(kept_sizes.values()))
    expensive_outputs = {number: size for operator in expensive for number, size in operator.outputs.items()}
    around = {number for operator in expensive for number in (*operator.inputs, *operator.outputs)}
    inputs = recorded.block_inputs.get(section.number, 0.0)
    compiled = min(none, inputs + sum(size for number, size in kept_sizes.items() if number in around))
    if section.role != "block" or not recorded.block_inputs:
        return Activations(*(scale * value for value in (none, compiled, none, none, none)))
    products = float(sum(expensive_outputs.values()))
    return Activations(*(scale * value for value in (none, compiled, inputs + products, inputs + products / 2, inputs)))


def _tensor_units(model: nn.Module, plans: Mapping[str, LayerPlan]) -> Iterator[tuple[str, int]]:
    modules = dict(model.named_modules())
    for name, plan in plans.items():
        if plan.parts:
            yield plan.unit or "parts", plan.parts
        elif plan.by in ("columns", "rows") and isinstance(module := modules.get(name), nn.Linear):
            yield ("outputs", module.out_features) if plan.by == "columns" else ("inputs", module.in_features)


def _merge_equal(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Consecutive layers that cost the same, as one kind of layer with their number."""
    count = 0
    for number, layer in enumerate(layers):
        count += 1
        if number + 1 == len(layers) or layers[number + 1] != layer:
            yield Layer(**{**layer.__dict__, "count": count})
            count = 0
