"""The degrees of `train.strategy`: what a task supports, and the workers as torch's device mesh."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.runtime.compat.torch import timeout_of_new_groups
from pipelines.strategies.sharded.context_parallel import Division, check_tokens
from pipelines.strategies.sharded.settings import Degrees, Settings
from pipelines.strategies.sharded.tensor_parallel import check_divisible
from pipelines.tasks.base import Task
from pipelines.train.reduce.context import COLLECTIVE_SHARE, WorkerContext

DATA_PARALLEL = ("replicate", "shard")
"""The degrees whose workers compute different rows; any model supports them."""


def check_degrees(settings: Train, task: Task, model: nn.Module) -> None:
    """Raise ConfigError for a degree that the task does not support; `model` is the task's, with or without values."""
    supported, degrees = _list_supported(task, model), settings.strategy_as(Settings).degrees(settings.max_workers)
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


def _list_supported(task: Task, model: nn.Module) -> tuple[str, ...]:
    model_degrees = {
        "pipeline": bool(task.stages(model, 1)),
        "tensor": bool(task.parallel_plan(model)),
        "context": task.divisible_tokens(model) is not None,
    }
    return (*DATA_PARALLEL, *(name for name, is_supported in model_degrees.items() if is_supported))


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
