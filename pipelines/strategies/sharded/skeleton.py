"""Builds a model without values, and gives values to a model that is spread over workers.

Every worker builds the skeleton. Only rank 0 also builds the model, in the memory of its machine, as strategies do that hold it
whole: so the initial weights are the same. It sends them tensor by tensor, and every worker keeps its part.
"""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.modules.module import register_module_parameter_registration_hook

from pipelines.tasks.base import Task
from pipelines.train.reduce.context import WorkerContext
from pipelines.train.reduce.dtensor import local_part


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
