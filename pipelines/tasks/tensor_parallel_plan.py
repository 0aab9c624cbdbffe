"""How the workers of `train.strategy.tensor` divide a model's layers, in terms that need no torch.distributed to be imported."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LayerPlan:
    """How the workers divide one module. Every worker has the whole input and the whole output of a module that is not divided."""

    by: Literal["columns", "gathered columns", "rows", "logits", "whole"]
    """`columns`: each worker computes some outputs of a linear layer, and has only those.
    `gathered columns`: then workers send them to each other.
    `rows`: a linear layer whose input is divided; the workers' outputs are summed. Or an embedding: each worker has some of its vectors.
    `logits`: a linear layer, each of whose outputs belongs to a class; torch computes their cross entropy without gathering them.
    `whole`: a module without parameters; its output, computed from logits, is whole."""
    parts: int = 0
    """What a worker has a whole number of, such as heads; by default the divided outputs or inputs themselves."""
    unit: str = ""
    """Plural name of the parts."""
