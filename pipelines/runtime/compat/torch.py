"""Private names of torch."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed import distributed_c10d
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from pipelines.runtime.compat import is_present, present, replacement

__all__ = [
    "BatchNorm", "after_backward", "constant_in_graphs", "last_collectives", "outside_of_graphs", "record_memory",
    "scale_tensors", "timeout_of_new_groups", "write_memory_snapshot",
]  # fmt: skip

_NO_SNAPSHOT = "the profile has no snapshot of the GPU's memory"

# Overridden in train.buffers.
present(BatchNorm, "_check_input_dim")


def timeout_of_new_groups(seconds: float) -> AbstractContextManager[None]:
    """Within the block, new process groups have this timeout. init_device_mesh passes none on, so that its groups would have torch's
    default, 30 minutes."""
    return replacement(distributed_c10d, "_get_default_timeout", lambda backend: timedelta(seconds=seconds))


def outside_of_graphs(function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compiler.disable`, which imports torch._dynamo where it decorates, for 0.7 s of CPU time in every process; this one imports it
    with the first call."""
    if is_present(torch._compile, "_disable_dynamo", instead="torch._dynamo is imported in every process"):
        return torch._compile._disable_dynamo(function)
    return cast(Callable[..., Any], torch.compiler.disable(function))


def constant_in_graphs(function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compiler.assume_constant_result`, which imports torch._dynamo where it decorates; this one sets the mark that it sets."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def after_backward(loss: Tensor, call: Callable[[], None]) -> None:
    """Call it when the backward pass from `loss` has computed all gradients, before DistributedDataParallel waits for those of others.

    Callbacks run in the order in which they were queued, and DistributedDataParallel queues its own with the last gradient.
    """

    engine = torch.autograd.Variable._execution_engine
    if is_present(type(engine), "queue_callback", instead="the time that gradients wait for those of others counts as the backward pass"):
        loss.register_hook(lambda _: engine.queue_callback(call))


def record_memory(on: bool) -> None:
    """Begin, or end, to record the history of torch's allocator on the GPU."""
    if is_present(torch.cuda.memory, "_record_memory_history", instead=_NO_SNAPSHOT):
        torch.cuda.memory._record_memory_history(enabled="all" if on else None)


def write_memory_snapshot(path: str) -> None:
    """Write what is recorded, for https://pytorch.org/memory_viz."""
    if is_present(torch.cuda.memory, "_dump_snapshot", instead=_NO_SNAPSHOT):
        torch.cuda.memory._dump_snapshot(path)


def last_collectives(count: int) -> list[dict[str, Any]]:
    """The last collective operations that this worker has begun, oldest first, from torch's flight recorder: NCCL has one, and so has Gloo
    from torch 2.13 on. Empty without one. After a timeout, the last is the one that did not end."""
    if not is_present(torch._C._distributed_c10d, "_dump_fr_trace_json", instead="the last collective operations are not known"):
        return []
    recorded = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(True, False))  # type: ignore[attr-defined]
    return list(recorded.get("entries", []))[-count:]


def scale_tensors(tensors: list[Tensor], factor: Tensor) -> None:
    """Multiply all tensors in place by a scalar tensor: on a GPU in a few kernels, where a loop would launch one per tensor."""
    if is_present(torch, "_foreach_mul_", instead="gradients are scaled one by one"):
        torch._foreach_mul_(tensors, factor)
    else:
        for tensor in tensors:
            tensor.mul_(factor)
