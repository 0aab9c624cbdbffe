"""Records the operators of a task's forward pass: shapes, FLOPs and bytes, the module that called each, and what autograd keeps.

A pass on fake tensors needs neither memory nor time for values. A model whose control flow depends on values is run on real rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from pipelines.data.versions.schema import ROW_KEYS
from pipelines.errors import ConfigError
from pipelines.runtime.compat.torch_operators import (
    NEEDS_VALUES,
    OperatorMode,
    autograd_tensors,
    count_flops,
    fake_tensors,
    operator_name,
    storage_identity,
    tensors_in,
)
from pipelines.tasks.base import Batch, Task, row_count

Kind = Literal["product", "attention", "other", "view"]
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}
_VIEWS = {"_unsafe_view", "detach", "empty", "empty_like", "new_empty", "empty_strided"}
"""Operators that move no bytes, besides those that torch calls views."""
_ATTENTION = "_scaled_dot_product_"


@dataclass(frozen=True)
class RecordedOperator:
    """One call of an operator. Tensors are named by numbers, the same for all views of a storage."""

    name: str
    kind: Kind
    module: str
    """The innermost module that was running, by name; empty for the model itself and what is outside of it."""
    block: int
    """The block that was running; -1 before the first one, and the number of blocks after it has begun and outside of any."""
    inputs: Mapping[int, int]
    """Bytes by tensor."""
    outputs: Mapping[int, int]
    flops: float = 0.0
    shape: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Of a product: positions, inputs and outputs."""
    is_causal: bool = False
    key_value_bytes: float = 0.0


@dataclass
class RecordedPass:
    """A forward pass with the loss."""

    rows: int
    operators: list[RecordedOperator] = field(default_factory=list)
    kept_tensors: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Block and bytes of each tensor that autograd keeps, without parameters."""
    parameters: set[int] = field(default_factory=set)
    """Tensors that are parameters, whose bytes do not grow with rows."""
    block_inputs: dict[int, float] = field(default_factory=dict)
    """Bytes of the tensors that each block takes."""
    block_outputs: dict[int, float] = field(default_factory=dict)
    module_blocks: dict[str, int] = field(default_factory=dict)
    """The block in which each module first ran, by name."""


@dataclass(frozen=True)
class CountedPass:
    """A recorded pass, and the task and the model that computed it, which may be without values."""

    recorded: RecordedPass
    task: Task
    model: nn.Module


def count_pass(build: Callable[[], Task], rows: int, read_rows: Callable[[int], Batch] | None = None) -> CountedPass:
    """Record a training pass in fp32 of `rows` rows by the task that `build` makes, on fake tensors. `read_rows` reads that many rows for
    a model whose control flow depends on values. Raises ConfigError if there are none."""
    try:
        with fake_tensors():
            task = build()
            model = task.model().train()
            return CountedPass(record(task, model, zero_rows(task, rows)), task, model)
    except (*NEEDS_VALUES, NotImplementedError) as error:
        if read_rows is None:
            reason = str(error).splitlines()[0][:200]
            raise ConfigError(
                f"the model's pass cannot be counted without values ({reason}); make the dataset version with jobs/etl.py first, with "
                "whose rows it is then counted"
            ) from error
    task = build()  # another one, since a task may keep tensors that it has computed
    model = task.model().train()
    return CountedPass(record(task, model, read_rows(rows)), task, model)


def zero_rows(task: Task, rows: int) -> Batch:
    """Rows of zeros, with what the task's columns have; each row has a number of its own where the task draws."""
    columns = (*task.data.columns, *task.data.carried)
    batch: Batch = {column.name: torch.zeros((rows, *column.shape), dtype=getattr(torch, column.dtype)) for column in columns}
    return {**batch, ROW_KEYS: torch.zeros(rows, dtype=torch.int64)} if task.draws else batch


def record(task: Task, model: nn.Module, batch: Batch) -> RecordedPass:
    """Record the forward pass and the loss of a batch."""
    recorder = _Recorder(row_count(batch), model, task.blocks(model))
    with recorder.watch_modules(), recorder:
        loss, _ = task.loss(model, batch)
    recorder.note_kept(loss)
    return recorder.recorded


class _Recorder(OperatorMode):
    """Notes every operator that reaches the dispatcher below autograd."""

    def __init__(self, rows: int, model: nn.Module, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.recorded = RecordedPass(rows)
        self._names = {module: name for name, module in model.named_modules()}
        self._blocks = {block: number for number, block in enumerate(blocks)}
        self._parameters = {storage_identity(parameter) for parameter in model.parameters()}
        self._running: list[nn.Module] = []
        self._block = -1
        self._numbers: dict[int, int] = {}
        self._tensors: list[Tensor] = []
        """Keeps them, so that no other tensor gets the same identity."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        result = function(*arguments, **options)
        inputs, outputs = self._sizes((arguments, options)), self._sizes(result)
        name = operator_name(function)
        if not name:  # a query of a tensor's device or layout
            return result
        kind, flops, shape = _describe(function, name, arguments, options, result)
        is_attention = kind == "attention"
        module = self._names.get(self._running[-1], "") if self._running else ""
        key_values = sum(size_bytes(tensor) for tensor in arguments[1:3]) if is_attention else 0
        self.recorded.operators.append(
            RecordedOperator(
                name, kind, module, self._block, inputs, outputs, flops, shape, is_attention and _is_causal(arguments, options), key_values
            )
        )
        return result

    @contextmanager
    def watch_modules(self) -> Iterator[None]:
        """Note which module and which block run, meanwhile."""
        handles = [register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave, always_call=True)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def note_kept(self, loss: Tensor) -> None:
        """Note the tensors that autograd keeps for the backward pass from `loss`, and which of all are parameters."""
        self.recorded.parameters = {number for storage, number in self._numbers.items() if storage in self._parameters}
        blocks = {number: operator.block for operator in reversed(self.recorded.operators) for number in operator.outputs}
        for tensor in autograd_tensors(loss):
            if storage_identity(tensor) not in self._parameters:
                number = self._number(tensor)
                self.recorded.kept_tensors[number] = (blocks.get(number, -1), size_bytes(tensor))

    def _enter(self, module: nn.Module, arguments: Any) -> None:
        self._running.append(module)
        if module in self._blocks:
            self._block = self._blocks[module]
            self.recorded.block_inputs[self._block] = sum(map(size_bytes, tensors_in(arguments)))
        if module in self._names:
            self.recorded.module_blocks.setdefault(self._names[module], self._block)

    def _leave(self, module: nn.Module, arguments: Any, output: Any) -> None:
        self._running.pop()
        if module in self._blocks:
            self.recorded.block_outputs[self._blocks[module]] = sum(map(size_bytes, tensors_in(output)))
            self._block = len(self._blocks)

    def _sizes(self, values: Any) -> dict[int, int]:
        return {self._number(tensor): size_bytes(tensor) for tensor in tensors_in(values)}

    def _number(self, tensor: Tensor) -> int:
        storage = storage_identity(tensor)
        if storage not in self._numbers:
            self._tensors.append(tensor)
            self._numbers[storage] = len(self._numbers)
        return self._numbers[storage]


def _describe(function: Any, name: str, arguments: Any, options: Any, result: Any) -> tuple[Kind, float, tuple[float, float, float]]:
    """The kind of an operator, its FLOPs, and the shape of a product."""
    if function.is_view or name in _VIEWS:
        return "view", 0.0, (0.0, 0.0, 0.0)
    flops = count_flops(function, arguments, options, result)
    if name.startswith(_ATTENTION):  # torch has no formula for the kernel of CPUs
        query, key, value = (tensor.shape for tensor in arguments[:3])
        pairs = query.numel() // query[-1] * key[-2]
        return "attention", float(2 * pairs * (query[-1] + value[-1])), (0.0, 0.0, 0.0)
    if name in _PRODUCTS:
        first, second = [value for value in arguments if isinstance(value, Tensor)][-2:]
        inputs, outputs = second.shape[-2:]
        return "product", flops, (first.numel() / inputs, float(inputs), float(outputs))
    if name == "convolution":
        weight = arguments[1]
        positions = result.numel() / result.shape[1]
        outputs, inputs = weight.shape[0], weight.numel() / weight.shape[0]
        return "product", flops, (positions, inputs, float(outputs))
    if flops:  # such as a recurrent layer, as one product of that many operations
        side = (flops / 2) ** (1 / 3)
        return "product", flops, (side, side, side)
    return "other", 0.0, (0.0, 0.0, 0.0)


def _is_causal(arguments: Sequence[Any], options: Mapping[str, Any]) -> bool:
    return bool(options.get("is_causal", any(value is True for value in arguments[3:])))


def size_bytes(tensor: Any) -> int:
    return tensor.numel() * tensor.element_size() if isinstance(tensor, Tensor) else 0
