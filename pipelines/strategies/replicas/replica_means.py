"""Means over replicas, or clients, whichever workers play them: bitwise equal for any number of workers."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from pipelines.train.exact.gradient_reducer import Bucket, bucket_indices
from pipelines.train.reduce.all_reduce import TreeAllReduce
from pipelines.train.reduce.tree import additions


class ReplicaMeans:
    """The mean over all replicas of a list of tensors, summed in the fixed tree with the replicas in place of shards."""

    def __init__(self, like: Sequence[Tensor], blocks: Sequence[range], rank: int) -> None:
        """`blocks` holds every worker's replicas, and `like` tensors as each replica gives. Collective."""
        self._replicas, self._additions = blocks[-1].stop, additions(blocks[rank], blocks[-1].stop)
        self._groups = bucket_indices(like)
        self._buckets = [Bucket([like[number] for number in group], len(blocks)) for group in self._groups]
        largest_bytes = max(bucket.nbytes for bucket in self._buckets)
        self._all_reduce = TreeAllReduce(blocks, self._replicas, rank, like[0].device, largest_bytes)

    @torch.no_grad()
    def mean(self, by_replica: Iterable[Sequence[Tensor]]) -> list[Tensor]:
        """The mean over all replicas; `by_replica` are the tensors of this worker's. Valid until the next call. Collective."""
        for times, tensors in zip(self._additions, by_replica, strict=True):
            for bucket, group in zip(self._buckets, self._groups, strict=True):
                bucket.begin()
                for view, number in zip(bucket.leaf_views, group, strict=True):
                    view.copy_(tensors[number])
                bucket.add(times)
        means: dict[int, Tensor] = {}
        for bucket, group in zip(self._buckets, self._groups, strict=True):
            self._all_reduce.reduce(bucket.partial_sums)
            means.update(zip(group, bucket.take_sum(), strict=True))
        return [means[number].div_(self._replicas) for number in sorted(means)]
