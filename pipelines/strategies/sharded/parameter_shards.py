"""Spreads a model's parameters over workers, block by block, by torch's `fully_shard`; and refuses models that it cannot spread.

Activation checkpointing saves memory too: a block's backward pass computes activations again, instead of keeping them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.runtime.compat import attribute
from pipelines.runtime.compat.torch import BatchNorm
from pipelines.strategies.sharded.settings import Settings
from pipelines.tasks.base import Task
from pipelines.train.dtensor import local_part
from pipelines.train.passes import Precision
from pipelines.train.workers import WorkerContext

_REMEDY = "strategy sharded cannot spread it over workers; change the model, or set train.strategy to ddp"
_EXPENSIVE = ("mm", "addmm", "bmm", "baddbmm", "convolution")
"""Names of the operations whose results `selective` keeps, besides all forms of attention."""


def skeleton(task: Task) -> nn.Module:
    """Build the task's model, with parameters on the meta device. Buffers and other tensors have memory and values, since a module may hold
    constants that are in no checkpoint."""
    hook = register_module_parameter_registration_hook(_move_to_meta)  # type: ignore[arg-type]  # its result replaces the parameter
    try:
        return task.model()
    finally:
        hook.remove()


def _move_to_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
    """Move a parameter to the meta device. A meta parameter stays the same object, since modules may share it."""
    if parameter is None or parameter.is_meta:
        return parameter
    return nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)


@torch.no_grad()
def allocate(root: nn.Module, device: torch.device, parameters_on: torch.device) -> None:
    """Give memory on the devices to the buffers and parameters of a module, whose values are then undefined."""
    root.to_empty(device=parameters_on)
    for buffer in root.buffers():
        if buffer.device.type != device.type:
            buffer.data = torch.empty_like(buffer, device=device)


@torch.no_grad()
def fill(
    model: nn.Module, initial: Mapping[str, Tensor], context: WorkerContext, global_tensors: Mapping[str, Tensor] | None = None
) -> None:
    """Set every parameter and buffer to rank 0's `initial` value of that name; on other workers `initial` is empty. Collective.

    If workers hold different parts of the model, `global_tensors` has the shapes and dtypes of the tensors of all workers.
    """
    local_tensors = parameters_and_buffers(model)
    for name, like in (global_tensors or local_tensors).items():
        value = (initial[name] if context.rank == 0 else torch.empty(like.shape, dtype=like.dtype)).to(context.device).contiguous()
        dist.broadcast(value, src=0)
        if (tensor := local_tensors.get(name)) is None:
            continue
        if isinstance(tensor, DTensor):
            value = distribute_tensor(value, tensor.device_mesh, tensor.placements, src_data_rank=None)
        local_part(tensor).copy_(local_part(value))


def parameters_and_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, also those that no checkpoint contains."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def shard_parameters(
    root: nn.Module, blocks: Sequence[nn.Module], settings: Settings, precision: Precision, mesh: DeviceMesh
) -> list[FSDPModule]:
    """Spread the parameters of each block, and then those of the root outside of blocks, over the workers of a mesh with a dimension
    `shard` and perhaps one of replicas before it.

    Returns the blocks and the root: each gathers its parameters for its passes, and sums its gradients over workers. Settings of the
    root that concern gradients are those of the blocks too.
    """
    # With bf16, gather parameters in bf16 and sum gradients in fp32. Models with batch norm gather fp32, since it wants parameters in the
    # precision of its statistics; so does fp16, in which gradients of parameters overflow where a pass sums them.
    is_narrow = precision.dtype == torch.bfloat16 and not any(isinstance(module, BatchNorm) for module in root.modules())
    dtype = torch.bfloat16 if is_narrow else None
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    offload_policy = CPUOffloadPolicy(pin_memory=mesh.device_type != "cpu") if settings.offload else OffloadPolicy()
    units = []
    for part in (*blocks, root):
        # The root's backward pass begins when its forward pass ends.
        is_freed = settings.reshard_after_forward and part is not root
        unit = fully_shard(part, mesh=mesh, mp_policy=policy, offload_policy=offload_policy, reshard_after_forward=is_freed)
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
        if mesh.size() > 1:  # else a worker whose rows use fewer parameters would send fewer bytes
            attribute(unit, "set_reduce_scatter_unused_params")(True)  # which torch 2.11 does not have
        units.append(unit)
    return units


def parameter_device(settings: Settings, device: torch.device) -> torch.device:
    """The device of a worker's part of parameters, gradients and optimizer state."""
    return torch.device("cpu") if settings.offload else device


def check_parameters(model: nn.Module, blocks: Sequence[nn.Module]) -> None:
    """Raise ConfigError, naming the parameter, for a model that cannot be spread."""
    for name, module in model.named_modules():
        if getattr(module, "sparse", False):
            raise ConfigError(f"{name} has sparse gradients, which no optimizer here supports; set sparse=False")
    dtypes = set()
    for name, parameter in model.named_parameters():
        dtypes.add(parameter.dtype)
        if len(dtypes) > 1:
            raise ConfigError(f"{name} is {parameter.dtype}, and parameters before it are not; {_REMEDY}")
        if not parameter.dim():
            raise ConfigError(f"{name} is a scalar, which has no rows to spread; give it the shape (1,)")
        if not parameter.is_contiguous():
            raise ConfigError(f"{name} is not contiguous; {_REMEDY}")
    inside = {module for block in blocks for module in block.modules()}
    outside = [parameter for module in model.modules() if module not in inside for parameter in module.parameters(recurse=False)]
    uses = Counter([parameter for block in blocks for parameter in block.parameters()] + list(dict.fromkeys(outside)))
    for name, parameter in model.named_parameters():
        if uses[parameter] > 1:
            raise ConfigError(f"{name} is used by two blocks, or by one and outside of it; {_REMEDY}")


def recompute(block: nn.Module, kind: Literal["none", "selective", "full"]) -> None:
    """Make a block's backward pass compute what its forward pass does not keep, with the same random numbers. Names do not change."""
    if kind == "none":
        return
    contexts: dict[str, Any] = {"context_fn": partial(create_selective_checkpoint_contexts, _policy)} if kind == "selective" else {}
    block.forward = partial(checkpoint, block.forward, use_reentrant=False, **contexts)


def check_recompute(settings: Train, task: Task, model: nn.Module) -> None:
    """Raise ConfigError for a task whose blocks cannot be computed again; `model` is the task's, with or without values."""
    kind, name, blocks = settings.strategy_as(Settings).activation_checkpointing, type(task).__name__, task.blocks(model)
    if kind != "none" and not blocks:
        raise ConfigError(
            f"train.strategy.activation_checkpointing is {kind}, but task {name} declares no blocks to compute again; set it to none"
        )
    if kind != "none" and any(isinstance(module, BatchNorm) for block in blocks for module in block.modules()):
        raise ConfigError(
            f"train.strategy.activation_checkpointing is {kind}, but blocks of task {name} contain batch norm, whose statistics would "
            "count every row twice; set it to none"
        )


def _policy(context: object, operation: Any, *arguments: object, **options: object) -> CheckpointPolicy:
    name: str = operation.name().removeprefix("aten::").partition(".")[0]
    is_kept = name in _EXPENSIVE or name.startswith("_scaled_dot_product_")
    return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE
