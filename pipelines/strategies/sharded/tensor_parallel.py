"""Tensor parallelism: layers that several workers compute together, by torch's `parallelize_module`, as the task's plan divides them."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, parallel

from pipelines.errors import ConfigError
from pipelines.strategies.sharded.settings import divisors
from pipelines.tasks.tensor_parallel_plan import LayerPlan


def divide(model: nn.Module, plan: Mapping[str, LayerPlan], mesh: DeviceMesh) -> None:
    """Divide the model's layers over the workers of a mesh with one dimension. Names of parameters do not change."""
    parallel.parallelize_module(model, mesh, {name: _style(module, split) for name, module, split in _match_layers(model, plan)})


def check_divisible(model: nn.Module, plan: Mapping[str, LayerPlan], degree: int) -> None:
    """Raise ConfigError, naming the layer, if the degree does not divide what the plan divides, or if the model does not fit the plan."""
    for pattern in plan:
        if not any(fnmatchcase(name, pattern) for name, _ in model.named_modules()):
            raise ConfigError(f"parallel_plan of the task divides {pattern}, but its model has no such module; correct the plan")
    _check_not_shared(model, {name for name, _, _ in _match_layers(model, plan)}, degree)
    for name, module, split in _match_layers(model, plan):
        if split.by != "whole" and not isinstance(module, nn.Linear | nn.Embedding):
            raise ConfigError(
                f"parallel_plan of the task divides {name}, a {type(module).__name__}; it can divide only Linear and Embedding"
            )
        if not isinstance(module, nn.Linear) or split.by == "logits":
            _check_every_worker_has_part(name, module, split, degree)
            continue  # torch divides classes and vectors of an embedding unevenly too
        sides = (module.in_features, "inputs") if split.by == "rows" else (module.out_features, "outputs")
        parts, unit = (split.parts, split.unit) if split.parts else sides
        if parts % degree:
            raise ConfigError(
                f"train.strategy.tensor is {degree}, but {name} has {parts} {unit}, which it does not divide; set it to one of "
                f"{divisors(parts)}, or change the number of {unit} in task"
            )


def _check_every_worker_has_part(name: str, module: nn.Module, split: LayerPlan, degree: int) -> None:
    """Raise ConfigError if a worker would have no class, or no vector of an embedding, with which torch cannot compute."""
    count = module.weight.shape[0] if split.by in ("rows", "logits") and isinstance(module, nn.Linear | nn.Embedding) else degree
    if not _is_enough(count, degree):
        fitting = max(fewer for fewer in range(1, degree) if _is_enough(count, fewer))
        raise ConfigError(
            f"train.strategy.tensor is {degree}, but {name} divides {count} {'classes' if split.by == 'logits' else 'vectors'}, so that a "
            f"worker would have none; lower it, such as to {fitting}"
        )


def _is_enough(count: int, degree: int) -> bool:
    """Whether each worker gets a part of `count`: torch gives all but the last workers equally many, rounded up."""
    return (degree - 1) * -(-count // degree) < count


def _check_not_shared(model: nn.Module, divided: set[str], degree: int) -> None:
    """Raise ConfigError, naming both, if a divided layer has the parameter of another layer: torch would make two of it."""
    holders: dict[nn.Parameter, list[tuple[str, str]]] = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            holders.setdefault(parameter, []).append((path, f"{path}.{name}"))
    for (path, name), *sharers in holders.values():
        if sharers and divided & {path, *(sharer for sharer, _ in sharers)}:
            raise ConfigError(
                f"train.strategy.tensor is {degree}, but {sharers[0][1]} is {name}, and layers that workers divide cannot share weights; "
                "set it to 1, or give each layer weights of its own"
            )


def parallel_cross_entropy(is_divided: bool) -> AbstractContextManager:
    """A context in which torch computes the cross entropy of divided logits, and its backward pass, without gathering them."""
    return parallel.loss_parallel() if is_divided else nullcontext()


def _match_layers(model: nn.Module, plan: Mapping[str, LayerPlan]) -> Iterator[tuple[str, nn.Module, LayerPlan]]:
    for pattern, split in plan.items():
        yield from ((name, module, split) for name, module in model.named_modules() if fnmatchcase(name, pattern))


def _style(module: nn.Module, split: LayerPlan) -> parallel.ParallelStyle:
    match split.by:
        case "columns":
            return parallel.ColwiseParallel()
        case "gathered columns":
            return parallel.ColwiseParallel(output_layouts=Replicate())
        case "logits":
            return parallel.ColwiseParallel(use_local_output=False)
        case "rows":
            return parallel.RowwiseParallel(input_layouts=Replicate() if isinstance(module, nn.Embedding) else Shard(-1))
        case "whole":
            return parallel.PrepareModuleOutput(output_layouts=Shard(-1), desired_output_layouts=Replicate())
