"""Sums the shards' gradients over all workers in the fixed tree: in buckets, during the backward pass."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from pipelines.errors import TrainingError
from pipelines.train.ordered_all_reduce import Background, TreeAllReduce, additions

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
        self.leaf_views: list[Tensor] = []
        """Views of the current leaf, one for each tensor."""
        self.missing: set[int] = set()
        """Indices of the views that are not filled yet."""

    @property
    def nbytes(self) -> int:
        """Size of one sum, including padding."""
        return sum(self._sizes) * self._like.element_size()

    def begin(self) -> None:
        """Begin a new leaf, all of whose views are missing."""
        self.partial_sums.append(self._free.pop() if self._free else self._like.new_zeros(sum(self._sizes)))
        self.leaf_views, self.missing = self.views(self.partial_sums[-1]), set(range(len(self._layout)))

    def add(self, times: int) -> None:
        """Add the newest sum to the one before it, `times` times."""
        for _ in range(times):
            newest = self.partial_sums.pop()
            self.partial_sums[-1].add_(newest)
            self._free.append(newest)

    def views(self, total: Tensor) -> list[Tensor]:
        """Views of a leaf or a sum, one for each tensor and with its shape."""
        return [flat.as_strided(*layout) for flat, layout in zip(total.split(self._sizes), self._layout, strict=False)]

    def take_sum(self) -> list[Tensor]:
        """Views of the finished sum; the next leaf reuses its memory."""
        total, self.partial_sums, self._free = self.partial_sums[0], [], [*self._free, *self.partial_sums[:0:-1], self.partial_sums[0]]
        return self.views(total)


class GradientReducer:
    """Sums the gradients of all shards, and one more vector of each shard. Collective.

    For each shard that this worker owns, call `begin`, run the passes, and call `end`; then call `wait`. A bucket is
    all-reduced as soon as the backward pass of the worker's last shard has filled it, in the same order on every worker.
    A backward pass that computes a gradient twice raises TrainingError.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], vector_size: int, blocks: Sequence[range], replica: int, shards: int) -> None:
        """`blocks` holds every replica's shards, and `replica` is this worker's. A shard's float64 vector has `vector_size` entries."""
        self._parameters, self._shards = parameters, len(blocks[replica])
        device = parameters[0].device
        self._additions, self._background = additions(blocks[replica], shards), Background(device)
        self._groups = bucket_indices(parameters)
        small = torch.empty(len(parameters) + vector_size, dtype=torch.float64, device=device)
        self._buckets = [
            *(Bucket([parameters[number] for number in group], len(blocks)) for group in self._groups),
            Bucket([small], len(blocks)),
        ]
        self._all_reduce = TreeAllReduce(blocks, shards, replica, device, max(bucket.nbytes for bucket in self._buckets))
        self._shard, self._reduced, self._is_last_pass = 0, 0, False
        self._used_parameters: set[int] = set()
        self._hooks: list[RemovableHandle] = []
        for bucket, group in enumerate(self._groups):
            for index, number in enumerate(group):
                self._hooks.append(parameters[number].register_post_accumulate_grad_hook(partial(self._gradient_hook, bucket, index)))

    def close(self) -> None:
        """Remove the hooks from the parameters, between two steps."""
        for hook in self._hooks:
            hook.remove()
        self._background.close()

    def begin(self) -> None:
        """Begin a shard."""
        for bucket in self._buckets:
            bucket.begin()

    def last_pass(self) -> None:
        """Announce the shard's last backward pass, whose gradients are complete as they arrive."""
        self._is_last_pass = True

    def end(self, vector: Tensor) -> None:
        """Finish a shard after its passes, with its vector."""
        self._is_last_pass = False
        unused = []
        for bucket, group in enumerate(self._groups):
            for index in sorted(self._buckets[bucket].missing):
                if self._parameters[group[index]].grad is None:
                    self._buckets[bucket].leaf_views[index].zero_()
                    unused.append(group[index])
                    self._fill(bucket, index)
                else:  # used in an earlier pass only
                    self._take(bucket, index)
        used = torch.ones(len(self._parameters), dtype=torch.float64, device=vector.device)
        if unused:  # to index with a list copies it to the device, and waits
            used[unused] = 0
        self._used_parameters.update(set(range(len(self._parameters))) - set(unused))
        torch.cat([used, vector], out=self._buckets[-1].leaf_views[0])
        self._fill(len(self._buckets) - 1, 0)
        self._shard += 1

    def wait(self) -> Tensor:
        """Set every parameter's gradient, None if no shard used it. Returns the sum of the vectors."""
        self._background.wait()
        *buckets, small = [bucket.take_sum() for bucket in self._buckets]
        shards_using, vector_sum = small[0].split([len(self._parameters), len(small[0]) - len(self._parameters)])
        # Reading from the device takes time, and is needed only if this worker left some parameter unused.
        used = shards_using.tolist() if len(self._used_parameters) < len(self._parameters) else None
        for gradients, group in zip(buckets, self._groups, strict=True):
            for gradient, number in zip(gradients, group, strict=True):
                self._parameters[number].grad = gradient if used is None or used[number] else None
        self._shard, self._reduced, self._used_parameters = 0, 0, set()
        return vector_sum

    def _gradient_hook(self, bucket: int, index: int, parameter: Tensor) -> None:
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
        self._buckets[bucket].leaf_views[index].copy_(parameter.grad)
        parameter.grad = None
        self._fill(bucket, index)

    def _fill(self, bucket: int, index: int) -> None:
        """Mark a view as filled; add up its bucket if that is full, and all-reduce complete buckets in order."""
        current = self._buckets[bucket]
        current.missing.remove(index)
        if current.missing:
            return
        current.add(self._additions[self._shard])
        while self._shard == self._shards - 1 and self._reduced < len(self._buckets) and not self._buckets[self._reduced].missing:
            self._background.submit(partial(self._all_reduce.reduce, self._buckets[self._reduced].partial_sums))
            self._reduced += 1


def bucket_indices(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Indices of the tensors of each bucket, last ones first, since a backward pass reaches these parameters first."""
    buckets: list[list[int]] = []
    free_bytes = 0
    for number in reversed(range(len(tensors))):
        tensor = tensors[number]
        if not buckets or free_bytes < tensor.nbytes or tensors[buckets[-1][0]].dtype != tensor.dtype:
            buckets.append([])
            free_bytes = BUCKET_BYTES
        buckets[-1].append(number)
        free_bytes -= tensor.nbytes
    return buckets
