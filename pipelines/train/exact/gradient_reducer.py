"""Sums the shards' gradients over all workers in the fixed tree: in buckets, during the backward pass."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from pipelines.errors import TrainingError
from pipelines.train.reduce.all_reduce import Background, TreeAllReduce
from pipelines.train.reduce.tree import additions

BUCKET_BYTES = 25 * 2**20
"""The default of DistributedDataParallel."""


class Bucket:
    """Flat memory for tensors of one dtype: the leaf of the current shard, and partial sums that wait for more shards.

    The memory is reused from step to step: allocating fresh pages costs as much as the sums.
    """

    def __init__(self, like: Sequence[Tensor], multiple: int) -> None:
        """Entries are padded to a `multiple`, so that workers can cut them into equal parts."""
        # Keeps the strides of dense tensors: fused optimizers expect gradients to have the memory layout of the weights.
        self._layout = [(tensor.shape, torch.empty_like(tensor, device="meta").stride()) for tensor in like]
        self._sizes = [tensor.numel() for tensor in like]
        self._sizes.append(-sum(self._sizes) % multiple)
        self._like, self._free = like[0], list[Tensor]()
        self.partial_sums: list[Tensor] = []
        self.pieces: list[Tensor] = []
        """Views of the current leaf, one for each tensor."""
        self.missing: set[int] = set()
        """Indices of the pieces that are not filled yet."""

    @property
    def nbytes(self) -> int:
        """Size of one sum, including padding."""
        return sum(self._sizes) * self._like.element_size()

    def begin(self) -> None:
        """Begin a new leaf, all of whose pieces are missing."""
        self.partial_sums.append(self._free.pop() if self._free else self._like.new_zeros(sum(self._sizes)))
        self.pieces, self.missing = self.pieces_of(self.partial_sums[-1]), set(range(len(self._layout)))

    def add(self, times: int) -> None:
        """Add the newest sum to the one before it, `times` times."""
        for _ in range(times):
            newest = self.partial_sums.pop()
            self.partial_sums[-1].add_(newest)
            self._free.append(newest)

    def pieces_of(self, total: Tensor) -> list[Tensor]:
        """Views of a leaf or a sum, one for each tensor and with its shape."""
        return [flat.as_strided(*layout) for flat, layout in zip(total.split(self._sizes), self._layout, strict=False)]

    def take_sum(self) -> list[Tensor]:
        """The pieces of the finished sum; the next leaf reuses its memory."""
        total, self.partial_sums, self._free = self.partial_sums[0], [], [*self._free, *self.partial_sums[:0:-1], self.partial_sums[0]]
        return self.pieces_of(total)


class GradientReducer:
    """Sums the gradients of all shards, and one more vector of each shard. Collective.

    For each shard that this worker owns, call `begin`, run the passes, and call `end`; then call `wait`. A bucket is
    all-reduced as soon as the backward pass of the worker's last shard has filled it, in the same order on every worker.
    A backward pass that computes a gradient twice raises TrainingError.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], beside: int, owned: Sequence[range], replica: int, shards: int) -> None:
        """`owned` holds every replica's shards, and `replica` is this worker's; `beside` is the length of the float64 vector."""
        self._parameters, self._owned = parameters, owned[replica]
        device = parameters[0].device
        self._additions, self._background = additions(owned[replica], shards), Background(device)
        self._groups = groups(parameters)
        small = torch.empty(len(parameters) + beside, dtype=torch.float64, device=device)
        self._buckets = [
            *(Bucket([parameters[number] for number in group], len(owned)) for group in self._groups),
            Bucket([small], len(owned)),
        ]
        self._all_reduce = TreeAllReduce(owned, shards, replica, device, max(bucket.nbytes for bucket in self._buckets))
        self._shard, self._reduced, self._is_last_pass = 0, 0, False
        self._used_here: set[int] = set()
        self._hooks: list[RemovableHandle] = []
        for bucket, group in enumerate(self._groups):
            for index, number in enumerate(group):
                self._hooks.append(parameters[number].register_post_accumulate_grad_hook(partial(self._arrived, bucket, index)))

    def close(self) -> None:
        """Let go of the parameters, between two steps."""
        for hook in self._hooks:
            hook.remove()
        self._background.close()

    def begin(self) -> None:
        for bucket in self._buckets:
            bucket.begin()

    def last_pass(self) -> None:
        """Announce the shard's last backward pass, whose gradients are complete as they arrive."""
        self._is_last_pass = True

    def end(self, beside: Tensor) -> None:
        """Finish a shard after its passes; `beside` is its vector."""
        self._is_last_pass = False
        unused = []
        for bucket, group in enumerate(self._groups):
            for index in sorted(self._buckets[bucket].missing):
                if self._parameters[group[index]].grad is None:
                    self._buckets[bucket].pieces[index].zero_()
                    unused.append(group[index])
                    self._fill(bucket, index)
                else:  # used in an earlier pass only
                    self._take(bucket, index)
        used = torch.ones(len(self._parameters), dtype=torch.float64, device=beside.device)
        used[unused] = 0
        self._used_here.update(set(range(len(self._parameters))) - set(unused))
        torch.cat([used, beside], out=self._buckets[-1].pieces[0])
        self._fill(len(self._buckets) - 1, 0)
        self._shard += 1

    def wait(self) -> Tensor:
        """Set every parameter's gradient, None if no shard used it. Returns the sum of the vectors."""
        self._background.wait()
        *buckets, small = [bucket.take_sum() for bucket in self._buckets]
        shards_using, beside = small[0].split([len(self._parameters), len(small[0]) - len(self._parameters)])
        # Reading from the device takes time, and is needed only if this worker left some parameter unused.
        used = shards_using.tolist() if len(self._used_here) < len(self._parameters) else None
        for pieces, group in zip(buckets, self._groups, strict=True):
            for piece, number in zip(pieces, group, strict=True):
                self._parameters[number].grad = piece if used is None or used[number] else None
        self._shard, self._reduced, self._used_here = 0, 0, set()
        return beside

    def _arrived(self, bucket: int, index: int, parameter: Tensor) -> None:
        """The hook that autograd calls when a parameter's gradient is complete."""
        if self._is_last_pass:
            self._take(bucket, index)

    def _take(self, bucket: int, index: int) -> None:
        number, parameter = self._groups[bucket][index], self._parameters[self._groups[bucket][index]]
        if index not in self._buckets[bucket].missing:
            raise TrainingError(
                f"a gradient of shape {tuple(parameter.shape)} (parameter {number}) was computed twice in one backward pass, as in "
                "reentrant checkpointing; set use_reentrant=False"
            )
        assert parameter.grad is not None
        self._buckets[bucket].pieces[index].copy_(parameter.grad)
        parameter.grad = None
        self._fill(bucket, index)

    def _fill(self, bucket: int, index: int) -> None:
        """Mark a piece as filled; add up its bucket if that is full, and all-reduce complete buckets in order."""
        filled = self._buckets[bucket]
        filled.missing.remove(index)
        if filled.missing:
            return
        filled.add(self._additions[self._shard])
        while self._shard == len(self._owned) - 1 and self._reduced < len(self._buckets) and not self._buckets[self._reduced].missing:
            self._background.do(partial(self._all_reduce.reduce, self._buckets[self._reduced].partial_sums))
            self._reduced += 1


def groups(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Indices of the tensors of each bucket, last ones first, since a backward pass reaches these parameters first."""
    found: list[list[int]] = []
    room = 0
    for number in reversed(range(len(tensors))):
        tensor = tensors[number]
        if not found or room < tensor.nbytes or tensors[found[-1][0]].dtype != tensor.dtype:
            found.append([])
            room = BUCKET_BYTES
        found[-1].append(number)
        room -= tensor.nbytes
    return found
