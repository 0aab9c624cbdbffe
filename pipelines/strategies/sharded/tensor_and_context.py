"""Layers and tokens that workers divide, by the degrees `tensor` and `context`; the degrees that a task supports, and torch's device mesh.

Tensor parallelism: several workers compute a layer together, by torch's `parallelize_module`, as the task's plan divides it.
Context parallelism: workers divide the tokens of each row, and send each other keys and values for attention.

    2 workers, 8 tokens

    worker   tokens
    0        0 1     6 7
    1        2 3 4 5

A later token attends to more tokens. So each worker has an early and a late part of a row, as in zig-zag ring attention, and all compute
equally much. They gather the keys and values of a row (Llama team 2024, "The Llama 3 herd of models", section 3.3.2), since torch's own
context parallelism has no kernels for CPUs.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fnmatch import fnmatchcase

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, parallel
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.runtime.compat.torch import timeout_of_new_groups
from pipelines.strategies.sharded.settings import Degrees, Settings, divisors
from pipelines.tasks.base import Task
from pipelines.tasks.model_parallel import Divisible, LayerPlan, OverTokens, Tokens
from pipelines.train.workers import COLLECTIVE_SHARE, WorkerContext

_TOKEN = 2
"""The dimension of tokens in keys and values."""
DATA_PARALLEL = ("replicate", "shard")
"""The degrees whose workers compute different rows; any model supports them."""


def divide(model: nn.Module, plan: Mapping[str, LayerPlan], mesh: DeviceMesh) -> None:
    """Divide the model's layers over the workers of a mesh with one dimension. Names of parameters do not change."""
    styles: dict[str, parallel.ParallelStyle] = {}
    for name, module, split in _match_layers(model, plan):
        match split.by:
            case "columns":
                styles[name] = parallel.ColwiseParallel()
            case "gathered columns":
                styles[name] = parallel.ColwiseParallel(output_layouts=Replicate())
            case "logits":
                styles[name] = parallel.ColwiseParallel(use_local_output=False)
            case "rows":
                styles[name] = parallel.RowwiseParallel(input_layouts=Replicate() if isinstance(module, nn.Embedding) else Shard(-1))
            case "whole":
                styles[name] = parallel.PrepareModuleOutput(output_layouts=Shard(-1), desired_output_layouts=Replicate())
    parallel.parallelize_module(model, mesh, styles)


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


class DividedTokens(Tokens):
    """This worker's part of each row's tokens: a part from the first half, and the one as far from the end."""

    def __init__(self, count: int, mesh: DeviceMesh) -> None:
        """`count` is the number of a row's tokens; `mesh` has one dimension, the workers that divide them."""
        self._mesh, self._workers, place = mesh, mesh.size(), mesh.get_local_rank()
        self._size = count // (2 * self._workers)
        parts = (place, 2 * self._workers - 1 - place)
        self._ranges = [range(part * self._size, (part + 1) * self._size) for part in parts]
        # Created here, since torch cannot make one while it records what `selective` checkpointing keeps.
        self._masks = [causal_lower_right(self._size, part.stop) for part in self._ranges]

    def local(self, values: Tensor) -> Tensor:
        return torch.cat([values[:, part.start : part.stop] for part in self._ranges], dim=1)

    def positions(self, count: int, device: torch.device) -> Tensor:
        return torch.cat([torch.arange(part.start, part.stop, device=device) for part in self._ranges])

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        # Gather keys and values of all tokens in their order, shape (2, rows, heads, tokens, width). Sums their gradients over workers.
        dim = _TOKEN + 1
        pair = DTensor.from_local(torch.stack([keys, values]), self._mesh, [Shard(dim)], run_check=False)
        early, late = pair.full_tensor(grad_placements=[Partial()]).unflatten(dim, (self._workers, 2, -1)).unbind(dim + 1)
        keys, values = torch.cat([early, late.flip(dim)], dim=dim).flatten(dim, dim + 1).unbind()
        outputs = [
            functional.scaled_dot_product_attention(part_queries, keys[:, :, : part.stop], values[:, :, : part.stop], mask)
            for part_queries, part, mask in zip(queries.split(self._size, _TOKEN), self._ranges, self._masks, strict=True)
        ]
        return torch.cat(outputs, dim=_TOKEN)

    def total(self, sums: Tensor) -> Tensor:
        """The sums over all workers. The gradient passes through unchanged: every worker computes the same loss of the total."""
        return DTensor.from_local(sums, self._mesh, [Partial()], run_check=False).full_tensor().clone()


def check_tokens(divisible: Divisible, degree: int) -> None:
    """Raise ConfigError if workers cannot divide a row's tokens into two parts each."""
    if divisible.count % (2 * degree):
        allowed = divisors(divisible.count // 2) if divisible.count % 2 == 0 else "1"
        raise ConfigError(
            f"train.strategy.context is {degree}, but a row has {divisible.count} tokens to predict from, which {2 * degree}, two parts "
            f"for each worker, does not divide; set it to one of {allowed}, or change the length of windows in dataset.features"
        )


class Division:
    """The modules of a model that compute some of a row's tokens; without any, every worker computes all of them."""

    def __init__(self, divisible: Divisible | None = None, mesh: DeviceMesh | None = None) -> None:
        self._modules: tuple[OverTokens, ...] = ()
        self._tokens = Tokens()
        self.place: tuple[int, ...] = ()
        """The number of this worker's part of the tokens, if they are divided: dropout draws other numbers for each part."""
        if divisible and mesh:
            self._modules, self._tokens, self.place = divisible.modules, DividedTokens(divisible.count, mesh), (mesh.get_local_rank(),)
        self._set_tokens(self._tokens)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Within the block, every worker computes all tokens."""
        self._set_tokens(Tokens())
        try:
            yield
        finally:
            self._set_tokens(self._tokens)

    def _set_tokens(self, tokens: Tokens) -> None:
        for module in self._modules:
            module.tokens = tokens


def check_degrees(settings: Train, task: Task, model: nn.Module) -> None:
    """Raise ConfigError for a degree that the task does not support; `model` is the task's, with or without values."""
    model_degrees = {
        "pipeline": bool(task.stages(model, 1)),
        "tensor": bool(task.parallel_plan(model)),
        "context": task.divisible_tokens(model) is not None,
    }
    supported = (*DATA_PARALLEL, *(name for name, is_supported in model_degrees.items() if is_supported))
    degrees = settings.strategy_as(Settings).degrees(settings.max_workers)
    for name, degree in degrees._asdict().items():
        if degree > 1 and name not in supported:
            raise ConfigError(
                f"train.strategy.{name} is {degree}, but task {type(task).__name__} supports only {', '.join(supported)}; set {name} to 1"
            )
    if settings.sync_batch_norm and degrees.workers_per_replica > 1:
        raise ConfigError(
            f"train.sync_batch_norm sums over all workers, {degrees.workers_per_replica} of which compute the same rows with these degrees "
            "of train.strategy; set it to false"
        )
    if degrees.tensor > 1 and settings.precision == "fp16":
        raise ConfigError(
            f"train.strategy.tensor is {degrees.tensor}, but train.precision is fp16, whose loss scale workers would have to agree on; set "
            "it to bf16 or fp32"
        )
    if settings.strategy_as(Settings).offload and settings.precision == "fp16":
        raise ConfigError(
            "train.strategy.offload is true, but train.precision is fp16, whose loss scale is on the GPU and gradients are not; set it to "
            "bf16 or fp32"
        )
    if degrees.tensor > 1 and settings.compile:  # a recursion error, as soon as the length of texts changes
        raise ConfigError(
            f"train.strategy.tensor is {degrees.tensor}, but train.compile is true, and torch 2.13 cannot compile divided layers for "
            "texts of several lengths; set it to false"
        )
    if degrees.tensor > 1:
        check_divisible(model, task.parallel_plan(model), degrees.tensor)
    if degrees.context > 1 and (divisible := task.divisible_tokens(model)):
        check_tokens(divisible, degrees.context)


def device_mesh(degrees: Degrees, context: WorkerContext, timeout_seconds: float) -> DeviceMesh:
    """Arrange the workers as a mesh with a dimension for each degree above 1, by name, and always one for `shard`. A collective operation
    along a dimension waits as long as one of all workers. Collective.

    Workers of a context group compute different tokens, so that their gradients are summed, as those of different rows: they are part
    of `shard`, and parameters are spread over them too.
    """
    ranks = torch.arange(context.world_size).view(degrees)
    ranks = ranks.permute(0, 1, 3, 2, 4).reshape(degrees.replicate, degrees.shard * degrees.context, degrees.pipeline, degrees.tensor)
    sizes = dict(zip(("replicate", "shard", "pipeline", "tensor"), ranks.shape, strict=True))
    sizes = {name: size for name, size in sizes.items() if size > 1 or name == "shard"}
    with timeout_of_new_groups(COLLECTIVE_SHARE * timeout_seconds):
        return DeviceMesh(context.device.type, ranks.view(*sizes.values()), mesh_dim_names=tuple(sizes))


def divide_tokens(degrees: Degrees, task: Task, model: nn.Module, context: WorkerContext, timeout_seconds: float) -> Division:
    """Divide the model's tokens over workers. Collective."""
    if degrees.context == 1:
        return Division()
    ranks = torch.arange(context.world_size).view(degrees).movedim(3, -1).reshape(-1, degrees.context)
    with timeout_of_new_groups(COLLECTIVE_SHARE * timeout_seconds):
        group, _ = dist.new_subgroups_by_enumeration(ranks.tolist())
    return Division(task.divisible_tokens(model), DeviceMesh.from_group(group, context.device.type))


def data_parallel(mesh: DeviceMesh) -> DeviceMesh:
    """The part of the mesh over which parameters are spread and gradients summed."""
    return mesh[tuple(name for name in DATA_PARALLEL if name in (mesh.mesh_dim_names or ()))]
