"""Context parallelism: workers divide the tokens of each row, and send each other keys and values for attention.

    2 workers, 8 tokens

    worker   tokens
    0        0 1     6 7
    1        2 3 4 5

A later token attends to more tokens. So each worker has an early and a late part of a row, as in zig-zag ring attention, and all compute
equally much. They gather the keys and values of a row (Llama team 2024, "The Llama 3 herd of models", section 3.3.2), since torch's own
context parallelism has no kernels for CPUs.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Shard
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from pipelines.errors import ConfigError
from pipelines.strategies.sharded.settings import divisors
from pipelines.tasks.tokens import Divisible, OverTokens, Tokens

_TOKEN = 2
"""The dimension of tokens in keys and values."""


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
        keys, values = self._gather(torch.stack([keys, values])).unbind()
        outputs = [
            functional.scaled_dot_product_attention(part_queries, keys[:, :, : part.stop], values[:, :, : part.stop], mask)
            for part_queries, part, mask in zip(queries.split(self._size, _TOKEN), self._ranges, self._masks, strict=True)
        ]
        return torch.cat(outputs, dim=_TOKEN)

    def total(self, sums: Tensor) -> Tensor:
        """The sums over all workers. The gradient passes through unchanged: every worker computes the same loss of the total."""
        return DTensor.from_local(sums, self._mesh, [Partial()], run_check=False).full_tensor().clone()

    def _gather(self, pair: Tensor) -> Tensor:
        """Gather keys and values of all tokens in their order, shape (2, rows, heads, tokens, width). Sums their gradients over workers."""
        dim = _TOKEN + 1
        local = DTensor.from_local(pair, self._mesh, [Shard(dim)], run_check=False)
        early, late = local.full_tensor(grad_placements=[Partial()]).unflatten(dim, (self._workers, 2, -1)).unbind(dim + 1)
        return torch.cat([early, late.flip(dim)], dim=dim).flatten(dim, dim + 1)


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
