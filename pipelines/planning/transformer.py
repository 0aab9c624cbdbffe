"""Costs of a transformer that predicts the next token, by formulas of its shape. Counts of memory traffic are those of the kernels that
PyTorch launches for each operation, and are stated beside each."""

from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

from pipelines.errors import ConfigError
from pipelines.planning.model_costs import Activations, Layer, Matmul, ModelCosts, TensorMessage


@dataclass(frozen=True)
class Transformer:
    """The shape of a decoder. `mlp` is the width of the perceptrons' hidden layer; with `gated`, there are two matrices to it."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    mlp: int
    vocabulary: int
    sequence: int
    gated: bool = False
    tied: bool = False
    rotary: bool = True
    """Positions as rotations of queries and keys; otherwise learned ones, that are added to the embedding."""
    biases: bool = False
    fused_norm: bool = True
    """Whether a norm is one kernel in eager mode, as LayerNorm is, and RMSNorm since torch 2.8."""
    autocast: bool = False
    """Whether norms, rotations, squares and the residual stream are in fp32 by torch.autocast. So it is in the task `language`, which has
    norms of queries and keys as well, and squares its activation."""
    window: int = 0
    """Tokens that a token attends to, if fewer than all before it."""


def _mpt(layers: int, width: int, heads: int) -> Transformer:
    return Transformer(layers, width, heads, heads, 4 * width, 50_368, 2_048, tied=True, rotary=False, biases=True)


def _llama3(layers: int, width: int, heads: int, mlp: int) -> Transformer:
    return Transformer(layers, width, heads, 8, mlp, 128_256, 8_192, gated=True)


SHAPES = {
    "gpt2": Transformer(12, 768, 12, 12, 3_072, 50_257, 1_024, tied=True, rotary=False, biases=True),
    "gpt2-xl": Transformer(48, 1_600, 25, 25, 6_400, 50_257, 1_024, tied=True, rotary=False, biases=True),
    "gpt3-175b": Transformer(96, 12_288, 96, 96, 49_152, 51_200, 2_048, tied=True, rotary=False, biases=True),
    "llama2-7b": Transformer(32, 4_096, 32, 32, 11_008, 32_000, 4_096, gated=True),
    "llama2-13b": Transformer(40, 5_120, 40, 40, 13_824, 32_000, 4_096, gated=True),
    "llama2-70b": Transformer(80, 8_192, 64, 8, 28_672, 32_000, 4_096, gated=True),
    "llama3-8b": _llama3(32, 4_096, 32, 14_336),
    "llama3-70b": _llama3(80, 8_192, 64, 28_672),
    "llama3-405b": _llama3(126, 16_384, 128, 53_248),
    "mpt-125m": _mpt(12, 768, 12),
    "mpt-350m": _mpt(24, 1_024, 16),
    "mpt-760m": _mpt(24, 1_536, 12),
    "mpt-1b": _mpt(24, 2_048, 16),
    "mpt-3b": _mpt(32, 2_560, 20),
    "mpt-7b": _mpt(32, 4_096, 32),
    "mpt-13b": _mpt(40, 5_120, 40),
    "mpt-30b": _mpt(48, 7_168, 56),
    "mpt-70b": _mpt(80, 8_192, 64),
}
"""Published shapes, by name: Radford et al. 2019, Brown et al. 2020, Touvron et al. 2023, the Llama team 2024, and those of llm-foundry."""


def parse_transformer(text: str) -> ModelCosts:
    """Costs of a named model, of `layers=32,width=4096,heads=32,…`, or of a name with changes: `llama3-8b,sequence=32768`.

    Raises ConfigError for an unknown name or field, a value that is no number, and a shape that does not fit."""
    first, _, changes = text.partition(",")
    values: dict[str, Any] = {}
    for item in (changes if "=" not in first else text).split(",") if changes or "=" in first else ():
        name, separator, value = item.strip().partition("=")
        values[_field(name)] = _number(name, value if separator else "")
    if "=" not in first:
        if first not in SHAPES:
            near = get_close_matches(first, SHAPES, n=3, cutoff=0.4) or list(SHAPES)
            raise ConfigError(f"model {first!r} is unknown; choose {' or '.join(near)}, or give layers=…,width=…,heads=…")
        return transformer_costs(replace(SHAPES[first], **values), text)
    missing = [name for name in ("layers", "width", "heads", "vocabulary", "sequence") if name not in values]
    if missing:
        raise ConfigError(f"model {text!r} has no {' and no '.join(missing)}; add {missing[0]}=NUMBER")
    values = {"kv_heads": values["heads"], "mlp": 4 * values["width"], **values}
    return transformer_costs(Transformer(**values), text)


def _field(name: str) -> str:
    names = [field.name for field in fields(Transformer)]
    if name not in names:
        near = get_close_matches(name, names, n=1, cutoff=0.4) or names
        raise ConfigError(f"model: {name!r} is no field of a transformer; choose {' or '.join(near)}")
    return name


def _number(name: str, value: str) -> int:
    words = {"yes": 1, "true": 1, "no": 0, "false": 0}
    if value not in words and not value.isdecimal():
        raise ConfigError(f"model: {name} is {value!r}, which is no whole number, nor yes or no; set it to one, such as {name}=1")
    return words[value] if value in words else int(value)


def transformer_costs(shape: Transformer, name: str) -> ModelCosts:
    """Costs of that shape; a row is a window of `sequence` tokens. Raises ConfigError if heads do not divide the width."""
    if min(shape.layers, shape.width, shape.heads, shape.kv_heads, shape.mlp, shape.vocabulary, shape.sequence) < 1:
        raise ConfigError(f"model {name!r}: layers, width, heads, mlp, vocabulary and sequence are at least 1; raise the one that is 0")
    for value, parts in ((shape.width, "heads"), (shape.heads, "kv_heads")):
        if value % getattr(shape, parts):
            raise ConfigError(f"model {name!r}: {parts} is {getattr(shape, parts)}, which does not divide {value}; set it to a divisor")
    divides = (("heads", shape.heads), ("key and value heads", shape.kv_heads), ("hidden units", shape.mlp))
    return ModelCosts(
        name,
        (_embedding(shape), _block(shape), _output(shape)),
        units_per_row=shape.sequence,
        unit="tokens",
        tensor_divides=divides,
        positions=shape.sequence,
        shares_weights=bool(shape.tied),
    )


def _embedding(shape: Transformer) -> Layer:
    tokens, width = shape.sequence, shape.width
    parameters = shape.vocabulary * width + (0 if shape.rotary else tokens * width)
    return Layer(
        "embedding",
        1,
        parameters,
        role="input",
        elementwise_bytes=tokens * width * 8,  # reads and writes rows of the table, in both directions
        fused_bytes=tokens * width * 4,
        activations=Activations(0, 0, 0, 0, 0),
        output_bytes=2 * tokens * width,
        tensor_messages=(TensorMessage("forward", 2 * tokens * width),),
        kernels=3,
        fused_kernels=2,
    )


def _block(shape: Transformer) -> Layer:
    tokens, width, hidden = shape.sequence, shape.width, shape.mlp
    key_values = shape.kv_heads * (width // shape.heads)
    projections = 3 if shape.gated else 2
    matmuls = (
        *(Matmul(tokens, width, outputs, "outputs", True) for outputs in (width, key_values, key_values)),
        Matmul(tokens, width, width, "inputs", True),
        *(Matmul(tokens, width, hidden, "outputs", True) for _ in range(projections - 1)),
        Matmul(tokens, hidden, width, "inputs", True),
    )
    biases = 2 * width + 2 * key_values + width + hidden + 2 * width if shape.biases else 0
    norms = 2 * width
    span = min(shape.window or tokens, tokens)
    return Layer(
        "block",
        shape.layers,
        int(sum(product.inputs * product.outputs for product in matmuls)) + biases + norms,
        matmuls,
        attention_flops=2 * 2 * width * tokens * span,
        attention_computed=0.5 if span == tokens else 1.0,
        attention_bytes=2 * tokens * width,
        score_bytes=2 * shape.heads * tokens * span,
        key_value_bytes=2 * 2 * tokens * key_values,
        elementwise_bytes=tokens * _eager_traffic(shape, key_values),
        fused_bytes=tokens * _traffic_if_compiled(shape, key_values),
        undivided=_residual_share(shape, key_values),
        activations=_activations(shape, key_values),
        working_bytes=tokens * _working(shape),
        fused_working_bytes=tokens * _working(shape),
        output_bytes=2 * tokens * width,
        tensor_messages=2 * (TensorMessage("forward", 2 * tokens * width), TensorMessage("backward", 2 * tokens * width)),
        kernels=20 + (10 if shape.rotary else 0) + (0 if shape.fused_norm else 10),
        fused_kernels=12,
    )


def _eager_traffic(shape: Transformer, key_values: int) -> float:
    """Bytes per token that elementwise kernels of a block read and write in a forward pass. A number of two bytes that is read and
    written costs 4."""
    if shape.autocast:
        norms = 2 * (8 + 6)  # in fp32, and the result to bf16
        residuals = 2 * 10
        turned = (12 + 12 + 8) + 8 + 6  # four products of halves, two sums, joined; a norm; to bf16
        return (norms + residuals) * shape.width + turned * (shape.width + key_values) + (4 + 20) * shape.mlp
    norm = 4 if shape.fused_norm else 36  # to fp32 6, square 8, mean 4, scale 8, to bf16 6, weight 4
    residual = 6
    rotation = 20 * (shape.width + key_values) if shape.rotary else 0  # to fp32 6, complex product 8, to bf16 6
    repeated = 6 * shape.width if key_values < shape.width else 0  # keys and values are repeated for all heads
    activation = (10 if shape.gated else 4) * shape.mlp  # read and written; and a product of two for the gate
    return 2 * (norm + residual) * shape.width + rotation + repeated + activation


def _traffic_if_compiled(shape: Transformer, key_values: int) -> float:
    """That traffic with compiled kernels: a residual and its norm are one, and so are rotations, and an activation with its gate."""
    rotation = 4 * (shape.width + key_values) if shape.rotary else 0
    return 2 * 8 * shape.width + rotation + (6 if shape.gated else 4) * shape.mlp


def _residual_share(shape: Transformer, key_values: int) -> float:
    """The part of a block's traffic that norms and residuals have, which every worker of a tensor group computes on all tokens."""
    return 2 * 8 * shape.width / _traffic_if_compiled(shape, key_values)


def _activations(shape: Transformer, key_values: int) -> Activations:
    """Bytes that a block keeps, as in Korthikanti et al. 2022, without dropout and without attention's probabilities.

    Without recomputation: inputs and outputs of both norms, queries, keys, values, attention's output, and the perceptron's hidden units
    before and after each operation. Otherwise the block's input, and results of matrix products and attention.
    """
    width, hidden = shape.width, shape.mlp
    queries = 2 * (width + 2 * key_values)
    gates = 2 if shape.gated else 1
    fp32 = (6 * width + 6 * (width + key_values) + 6 * hidden) if shape.autocast else 0  # beside copies in bf16
    none = fp32 + 10 * width + queries + 2 * hidden * (2 * gates)
    compiled = 6 * width + queries + 2 * hidden * gates
    products = queries + 2 * width + 2 * hidden * gates + 2 * width
    selective = 2 * width + 2 * width + products
    alternate = 2 * width + 2 * width + products / 2
    return Activations(*(shape.sequence * value for value in (none, compiled, selective, alternate, 2 * width)))


def _working(shape: Transformer) -> float:
    """Bytes per token of gradients of hidden units, and of inputs and outputs, in a block's backward pass."""
    return 2 * 4 * shape.width + 2 * (3 if shape.gated else 2) * shape.mlp


def _output(shape: Transformer) -> Layer:
    """The last norm, the logits and the cross entropy in fp32.

    In eager mode, its forward pass has a traffic of 18 bytes per logit, and keeps logits in bf16 and logarithms of probabilities in fp32;
    gradients are in both too. Compiled, all of it is computed from logits in bf16."""
    tokens, width, vocabulary = shape.sequence, shape.width, shape.vocabulary
    logits, eager_logits, norm = 2 * vocabulary * tokens, 6 * vocabulary * tokens, 4 * tokens * width
    eager = eager_logits + norm
    return Layer(
        "output",
        1,
        (0 if shape.tied else vocabulary * width) + (2 if shape.biases else 1) * width,
        (Matmul(tokens, width, vocabulary, "outputs"),),
        role="output",
        elementwise_bytes=tokens * (18 * vocabulary + 6 * width),
        fused_bytes=tokens * (6 * vocabulary + 4 * width),
        undivided=0.0,
        activations=Activations(eager, logits + norm, eager, eager, eager),
        working_bytes=eager_logits,
        fused_working_bytes=logits,
        output_bytes=2 * tokens * width,
        tensor_messages=(TensorMessage("backward", 2 * tokens * width),),
        kernels=10,
        fused_kernels=5,
    )
