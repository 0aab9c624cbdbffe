"""Private names of torch by which operators are recorded, on tensors without values or with them. The import takes half a second."""

from contextlib import AbstractContextManager, suppress
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode as OperatorMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from pipelines.runtime.compat import present

__all__ = [
    "NEEDS_VALUES",
    "OperatorMode",
    "autograd_tensors",
    "count_flops",
    "fake_tensors",
    "operator_name",
    "storage_identity",
    "tensors_in",
]

NEEDS_VALUES = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
"""What a model raises on fake tensors if its control flow, or the shape of a tensor, depends on values."""
present(OperatorMode, "__torch_dispatch__")


def fake_tensors() -> AbstractContextManager[FakeTensorMode]:
    """Within the block, new tensors have shapes and dtypes, and no values. Constants that a module made before are taken as they are."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def count_flops(function: object, arguments: Any, options: Any, result: Any) -> float:
    """FLOPs of a call of an operator, by torch's formula for it; 0 without one."""
    formula = flop_registry.get(getattr(function, "_overloadpacket", None))
    return float(formula(*arguments, **options, out_val=result)) if formula else 0.0


def operator_name(function: object) -> str:
    """`mm` of torch.ops.aten.mm.default; empty for queries of a tensor's properties, such as its device."""
    library, _, name = str(function).partition(".")
    return "" if library == "prim" else name.partition(".")[0]


def autograd_tensors(loss: Tensor) -> list[Tensor]:
    """The tensors that the nodes of the graph behind `loss` keep for the backward pass; one that several keep comes several times."""
    nodes, visited, saved = [loss.grad_fn], {loss.grad_fn}, list[Tensor]()
    while nodes:
        node = nodes.pop()
        names = [name for name in dir(node) if name.startswith("_saved_")] if node is not None else []
        saved += [tensor for name in names for tensor in tensors_in(getattr(node, name))]
        saved += tensors_in(getattr(node, "saved_tensors", ()))  # of a function that is written in Python
        following = [parent for parent, _ in getattr(node, "next_functions", ()) if parent not in visited]
        visited.update(following)
        nodes += following
    return saved


def storage_identity(tensor: Tensor) -> int:
    """A number that views of the same storage have in common, for as long as one of them exists."""
    identity = 0
    with suppress(NotImplementedError, RuntimeError):  # a tensor without storage, such as a sparse one
        identity = tensor.untyped_storage()._cdata
    return identity or id(tensor)


def tensors_in(values: object) -> list[Tensor]:
    """All tensors of nested tuples, lists and dictionaries."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
