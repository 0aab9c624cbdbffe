"""The costs of a model: parameters, operations and bytes of each of its layers, per row, whatever the hardware and the layout.

A row is what the dataset calls one: a window of tokens, a picture, a row of a table. Bytes of activations are those of numbers of two
bytes, and `convert_precision` converts them. `transformer` computes these costs by formulas; a measurement of any other model fills the
same classes.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

Checkpointing = Literal["none", "selective", "alternate", "full"]
"""What is computed again in a backward pass: nothing; all but matrix products and attention; half of the matrix products too, as torchtitan
does; or all."""


@dataclass(frozen=True)
class Matmul:
    """A product of matrices, (positions x inputs) by (inputs x outputs) for each row; a convolution is one, with a position per pixel."""

    positions: float
    inputs: float
    outputs: float
    divided_by: Literal["nothing", "outputs", "inputs"] = "nothing"
    """What tensor parallelism divides."""
    float8: bool = False
    """Whether float8 training computes it in 8 bits."""

    @property
    def flops(self) -> float:
        """Of a forward pass, per row."""
        return 2 * self.positions * self.inputs * self.outputs


@dataclass(frozen=True)
class Activations:
    """Bytes per row that a layer keeps for its backward pass, by what is computed again; `compiled` is `none` with fused kernels."""

    none: float
    compiled: float
    selective: float
    alternate: float
    full: float

    def kept_bytes(self, checkpointing: Checkpointing, is_fused: bool) -> float:
        """Bytes per row, with fused kernels or not."""
        return self.compiled if checkpointing == "none" and is_fused else float(getattr(self, checkpointing))


@dataclass(frozen=True)
class TensorMessage:
    """A tensor that the workers of a tensor group sum or gather once in a layer."""

    direction: Literal["forward", "backward"]
    bytes_per_row: float
    """Of the tensor that all of them have afterwards."""
    kind: Literal["sum", "gather"] = "sum"


@dataclass(frozen=True)
class Layer:
    """A kind of layer, and how often it stands in a row. All figures are those of one of them."""

    name: str
    count: int
    parameters: int
    matmuls: tuple[Matmul, ...] = ()
    """In their order: recomputation stops before the last one, whose result no backward pass needs."""
    role: Literal["input", "block", "output"] = "block"
    """Blocks are gathered one by one, and divided over the stages of a pipeline; the first has the input, the last the output."""
    attention_flops: float = 0.0
    """Of a forward pass, per row, with all pairs of positions."""
    attention_computed: float = 1.0
    """The part of them that a kernel computes: half where a position attends to earlier ones only."""
    attention_bytes: float = 0.0
    """Of attention's output, per row."""
    score_bytes: float = 0.0
    """Of attention's probabilities, per row, which only attention in several kernels has in memory."""
    key_value_bytes: float = 0.0
    """Of keys and values, per row, which workers that divide a row's positions gather."""
    elementwise_bytes: float = 0.0
    """Memory traffic of all other operations of a forward pass, per row, each in a kernel of its own."""
    fused_bytes: float = 0.0
    """The same with compiled kernels."""
    undivided: float = 1.0
    """The part of traffic and activations that tensor parallelism does not divide."""
    activations: Activations = Activations(0, 0, 0, 0, 0)
    working_bytes: float = 0.0
    """Further bytes per row while the layer's backward pass runs."""
    fused_working_bytes: float = 0.0
    """The same with compiled kernels."""
    output_bytes: float = 0.0
    """Per row, which a pipeline sends to the next stage."""
    tensor_messages: tuple[TensorMessage, ...] = ()
    kernels: int = 10
    """Kernels of a forward pass."""
    fused_kernels: int = 10
    """The same when compiled."""

    @property
    def matmul_flops(self) -> float:
        """Of a forward pass, per row."""
        return sum(product.flops for product in self.matmuls)


@dataclass(frozen=True, eq=False)
class ModelCosts:
    """A model as a sequence of kinds of layers. Two are equal if they are the same object, so that what follows from one can be cached."""

    name: str
    layers: tuple[Layer, ...]
    units_per_row: int = 1
    """Tokens of a row, for whom throughput is stated in tokens."""
    unit: Literal["tokens", "rows"] = "rows"
    tensor_divides: tuple[tuple[str, int], ...] = ()
    """What the degree `tensor` must divide, by name; empty where layers cannot be divided."""
    positions: int = 0
    """Positions of a row that the degree `context` divides; 0 where it cannot."""
    recomputes: bool = True
    """Whether its blocks can be computed again in a backward pass: it has some, and none with batch norm."""
    has_stages: bool = True
    """Whether it can be cut into the stages of a pipeline: its task says how, and it has no batch norm."""
    shares_weights: bool = False
    """Whether input and output share weights, so that neither a pipeline nor tensor parallelism can divide the model."""

    @cached_property
    def parameters(self) -> int:
        return sum(layer.count * layer.parameters for layer in self.layers)

    @cached_property
    def blocks(self) -> int:
        return sum(layer.count for layer in self.layers if layer.role == "block")

    @property
    def model_flops(self) -> float:
        """FLOPs of a step per row, as MFU counts them: three times the forward pass, with all pairs of attention and no recomputation.

        For a transformer these are 3 * 2 * n * T + 3 * L * 2 * 2 * d * T**2, where n are the parameters of matrix products, T the tokens
        of a row, L the layers and d the width (Chowdhery et al. 2022, appendix B)."""
        return sum(3 * layer.count * (layer.matmul_flops + layer.attention_flops) for layer in self.layers)


_BYTES = (
    "attention_bytes",
    "score_bytes",
    "key_value_bytes",
    "elementwise_bytes",
    "fused_bytes",
    "working_bytes",
    "fused_working_bytes",
    "output_bytes",
)


@lru_cache(maxsize=64)
def convert_precision(model: ModelCosts, bytes_per_number: int) -> ModelCosts:
    """The model with activations of so many bytes per number."""
    factor = bytes_per_number / 2
    if factor == 1:
        return model
    layers = []
    for layer in model.layers:
        activations = Activations(*(factor * getattr(layer.activations, name) for name in Activations.__dataclass_fields__))
        messages = tuple(replace(message, bytes_per_row=factor * message.bytes_per_row) for message in layer.tensor_messages)
        sizes: dict[str, Any] = {name: factor * getattr(layer, name) for name in _BYTES}
        layers.append(replace(layer, activations=activations, tensor_messages=messages, **sizes))
    return replace(model, layers=tuple(layers))
