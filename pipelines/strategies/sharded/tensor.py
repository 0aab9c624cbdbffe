"""Tensor parallelism: layers that several workers compute together, by torch's `parallelize_module`, as the task's plan divides them."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleOutput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)

from pipelines.errors import ConfigError
from pipelines.strategies.sharded.settings import divisors
from pipelines.tasks.tensor_parallel_plan import Split


def divide(model: nn.Module, plan: Mapping[str, Split], mesh: DeviceMesh) -> None:
    """Divide the model's layers over the workers of a mesh with one dimension. Names of parameters do not change."""
    parallelize_module(model, mesh, {name: _style(module, split) for name, module, split in _planned(model, plan)})


def check_divisible(model: nn.Module, plan: Mapping[str, Split], degree: int) -> None:
    """Raise ConfigError, naming the layer, if the degree does not divide what the plan divides, or if the model does not fit the plan."""
    for pattern in plan:
        if not any(fnmatchcase(name, pattern) for name, _ in model.named_modules()):
            raise ConfigError(f"parallel_plan of the task divides {pattern}, but its model has no such module; correct the plan")
    _check_not_shared(model, {name for name, _, _ in _planned(model, plan)}, degree)
    for name, module, split in _planned(model, plan):
        if split.by != "whole" and not isinstance(module, nn.Linear | nn.Embedding):
            raise ConfigError(
                f"parallel_plan of the task divides {name}, a {type(module).__name__}; it can divide only Linear and Embedding"
            )
        if not isinstance(module, nn.Linear) or split.by == "logits":
            _check_nobody_is_left_out(name, module, split, degree)
            continue  # torch divides classes and vectors of an embedding unevenly too
        parts, unit = (split.parts, split.unit) if split.parts else _size(module, split)
        if parts % degree:
            raise ConfigError(
                f"train.strategy.tensor is {degree}, but {name} has {parts} {unit}, which it does not divide; set it to one of "
                f"{divisors(parts)}, or change the number of {unit} in task"
            )


def _check_nobody_is_left_out(name: str, module: nn.Module, split: Split, degree: int) -> None:
    """Raise ConfigError if a worker would have no class, or no vector of an embedding, with which torch cannot compute."""
    count = module.weight.shape[0] if split.by in ("rows", "logits") and isinstance(module, nn.Linear | nn.Embedding) else degree
    if not _gives_each_some(count, degree):
        fitting = max(fewer for fewer in range(1, degree) if _gives_each_some(count, fewer))
        raise ConfigError(
            f"train.strategy.tensor is {degree}, but {name} divides {count} {'classes' if split.by == 'logits' else 'vectors'}, so that a "
            f"worker would have none; lower it, such as to {fitting}"
        )


def _gives_each_some(count: int, degree: int) -> bool:
    """Whether each worker gets at least one of them: torch gives all but the last ones equally many, rounded up."""
    return (degree - 1) * -(-count // degree) < count


def _check_not_shared(model: nn.Module, divided: set[str], degree: int) -> None:
    """Raise ConfigError, naming both, if a divided layer has the parameter of another layer: torch would make two of it."""
    holders: dict[nn.Parameter, list[tuple[str, str]]] = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            holders.setdefault(parameter, []).append((path, f"{path}.{name}"))
    for (path, name), *others in holders.values():
        if others and divided & {path, *(other for other, _ in others)}:
            raise ConfigError(
                f"train.strategy.tensor is {degree}, but {others[0][1]} is {name}, and layers that workers divide cannot share weights; "
                "set it to 1, or give each layer weights of its own"
            )


def divided_cross_entropy(is_divided: bool) -> AbstractContextManager:
    """Where the cross entropy of divided logits, and its backward pass, are computed without gathering them."""
    return loss_parallel() if is_divided else nullcontext()


def _planned(model: nn.Module, plan: Mapping[str, Split]) -> Iterator[tuple[str, nn.Module, Split]]:
    for pattern, split in plan.items():
        yield from ((name, module, split) for name, module in model.named_modules() if fnmatchcase(name, pattern))


def _size(module: nn.Linear, split: Split) -> tuple[int, str]:
    return (module.in_features, "inputs") if split.by == "rows" else (module.out_features, "outputs")


def _style(module: nn.Module, split: Split) -> ParallelStyle:
    match split.by:
        case "columns":
            return ColwiseParallel()
        case "gathered columns":
            return ColwiseParallel(output_layouts=Replicate())
        case "logits":
            return ColwiseParallel(use_local_output=False)
        case "rows":
            return RowwiseParallel(input_layouts=Replicate() if isinstance(module, nn.Embedding) else Shard(-1))
        case "whole":
            return PrepareModuleOutput(output_layouts=Shard(-1), desired_output_layouts=Replicate())
