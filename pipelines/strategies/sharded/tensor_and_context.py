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
from contextlib import contextmanager
from fnmatch import fnmatchcase

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, parallel
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.runtime.compat.torch import timeout_of_new_groups
from pipelines.strategies.sharded.settings import Degrees, Settings, divisors
from pipelines.tasks.base import Task
from pipelines.tasks.linear_cross_entropy import Head, HeadClasses
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
                assert isinstance(module, Head), "as `check_divisible` has found"
                _divide_classes(module, mesh)
            case "rows":
                styles[name] = parallel.RowwiseParallel(input_layouts=Replicate() if isinstance(module, nn.Embedding) else Shard(-1))
    parallel.parallelize_module(model, mesh, styles)


def _divide_classes(head: Head, mesh: DeviceMesh) -> None:
    classes = head.out_features
    for name, parameter in list(head.named_parameters(recurse=False)):
        divided = nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)]), requires_grad=parameter.requires_grad)
        head.register_parameter(name, divided)
    head.classes = DividedClasses(classes, mesh)


class DividedClasses(HeadClasses):
    """This worker's part of a head's classes. No worker has the logits of all of them, unless it asks for them."""

    def __init__(self, count: int, mesh: DeviceMesh) -> None:
        """`count` is the number of all classes; `mesh` has one dimension, the workers that divide them."""
        self._count, self._group, self._workers = count, mesh.get_group(), mesh.size()
        self._size = -(-count // self._workers)  # of all parts but the last
        self._first = self._size * mesh.get_local_rank()

    def own(self, parameter: Tensor) -> Tensor:
        return parameter.to_local() if isinstance(parameter, DTensor) else parameter

    def own_targets(self, targets: Tensor) -> Tensor:
        own_targets = targets - self._first
        return torch.where((own_targets >= 0) & (own_targets < min(self._size, self._count - self._first)), own_targets, -1)

    def merge(self, normalisers: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        parts = self._gather(torch.stack([normalisers, chosen]))
        return parts[:, 0].logsumexp(0), parts[:, 1].sum(0)

    def sum(self, gradient: Tensor) -> Tensor:
        dist.all_reduce(gradient, group=self._group)
        return gradient

    def gather(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The logits of all classes. Raises ConfigError if they should have gradients, which would not reach the other workers."""
        if torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad):
            raise ConfigError(
                "a loss is computed of the logits of a head that workers divide; give the head the targets, which returns their cross "
                "entropy, or set train.strategy.tensor to 1"
            )
        logits = functional.linear(hidden, self.own(weight), None if bias is None else self.own(bias))
        padded = functional.pad(logits, (0, self._size - logits.shape[-1]))
        return torch.cat(list(self._gather(padded)), dim=-1)[..., : self._count]

    def _gather(self, values: Tensor) -> Tensor:
        """The workers' values, in the order of their parts, shape (workers, …)."""
        parts = [torch.empty_like(values) for _ in range(self._workers)]
        dist.all_gather(parts, values.contiguous(), group=self._group)
        return torch.stack(parts)


def check_divisible(model: nn.Module, plan: Mapping[str, LayerPlan], degree: int) -> None:
    """Raise ConfigError, naming the layer, if the degree does not divide what the plan divides, or if the model does not fit the plan."""
    for pattern in plan:
        if not any(fnmatchcase(name, pattern) for name, _ in model.named_modules()):
            raise ConfigError(f"parallel_plan of the task divides {pattern}, but its model has no such module; correct the plan")
    _check_not_shared(model, {name for name, _, _ in _match_layers(model, plan)}, degree)
    for name, module, split in _match_layers(model, plan):
        is_head = split.by == "logits"
        if not isinstance(module, (Head,) if is_head else (nn.Linear, nn.Embedding)):
            kinds = "a Head of pipelines.tasks.linear_cross_entropy" if is_head else "Linear and Embedding"
            raise ConfigError(
                f"parallel_plan of the task divides {name}, a {type(module).__name__}, by {split.by}; it can divide only {kinds}"
            )
        if not isinstance(module, nn.Linear) or is_head:
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
