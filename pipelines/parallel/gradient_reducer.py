"""Gradients on their way from a shard's backward pass into the tree: in buckets that meet while the pass goes on."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from pipelines.collectives.all_reduce import Background, Meeting
from pipelines.collectives.tree import additions
from pipelines.errors import TrainingError

BUCKET_BYTES = 25 * 2**20
"""As much as DistributedDataParallel sends at a time."""


class Bucket:
    """Tensors of one dtype side by side: the leaf of the shard under way, and the sums of the tree that wait for more.

    Memory is kept from step to step: fresh pages cost as much as the sums.
    """

    def __init__(self, like: Sequence[Tensor], multiple: int) -> None:
        """`multiple`: of the entries, which are padded to it, so that workers can cut them into equal parts."""
        # Of the tensors' own strides where they are dense: fused optimizers take gradients to lie in memory as weights do.
        self._layout = [(tensor.shape, torch.empty_like(tensor, device="meta").stride()) for tensor in like]
        self._sizes = [tensor.numel() for tensor in like]
        self._sizes.append(-sum(self._sizes) % multiple)
        self._like, self._free = like[0], list[Tensor]()
        self.nodes: list[Tensor] = []
        self.pieces: list[Tensor] = []
        """Of the leaf under way."""
        self.missing: set[int] = set()

    @property
    def nbytes(self) -> int:
        """Of a sum, with its padding."""
        return sum(self._sizes) * self._like.element_size()

    def begin(self) -> None:
        """A new leaf, all of whose pieces are missing."""
        self.nodes.append(self._free.pop() if self._free else self._like.new_zeros(sum(self._sizes)))
        self.pieces, self.missing = self.pieces_of(self.nodes[-1]), set(range(len(self._layout)))

    def add(self, times: int) -> None:
        """Add the newest sum to the one before it, so many times."""
        for _ in range(times):
            newest = self.nodes.pop()
            self.nodes[-1].add_(newest)
            self._free.append(newest)

    def pieces_of(self, node: Tensor) -> list[Tensor]:
        """Views of a leaf or a sum, one for each tensor and with its shape."""
        return [flat.as_strided(*layout) for flat, layout in zip(node.split(self._sizes), self._layout, strict=False)]

    def taken(self) -> list[Tensor]:
        """The pieces of the sum; their memory is the next leaf's."""
        total, self.nodes, self._free = self.nodes[0], [], [*self._free, *self.nodes[:0:-1], self.nodes[0]]
        return self.pieces_of(total)


class Gradients:
    """Sums every shard's gradients, and a vector beside them, over all shards: `begin`, passes, `end` for each shard that
    this worker plays, then `wait`. Collective.

    A bucket goes to the other workers as soon as the last shard's backward pass has filled it, in the same order for all.
    A backward pass raises TrainingError where a gradient comes twice in it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], beside: int, plays: Sequence[range], rank: int, shards: int) -> None:
        """`beside` is the length of the float64 vector."""
        self._parameters, self._block = parameters, plays[rank]
        device = parameters[0].device
        self._additions, self._background = additions(plays[rank], shards), Background(device)
        self._groups = _groups(parameters)
        small = torch.empty(len(parameters) + beside, dtype=torch.float64, device=device)
        self._buckets = [
            *(Bucket([parameters[number] for number in group], len(plays)) for group in self._groups),
            Bucket([small], len(plays)),
        ]
        self._meeting = Meeting(plays, shards, rank, device, max(bucket.nbytes for bucket in self._buckets))
        self._shard, self._sent, self._is_last_pass = 0, 0, False
        self._used_here: set[int] = set()
        for bucket, group in enumerate(self._groups):
            for place, number in enumerate(group):
                parameters[number].register_post_accumulate_grad_hook(partial(self._arrived, bucket, place))

    def begin(self) -> None:
        for bucket in self._buckets:
            bucket.begin()

    def last_pass(self) -> None:
        """The next backward pass is the shard's last: its gradients may be taken as they come."""
        self._is_last_pass = True

    def end(self, beside: Tensor) -> None:
        """The shard's passes are done; `beside` is its vector."""
        self._is_last_pass = False
        unused = []
        for bucket, group in enumerate(self._groups):
            for place in sorted(self._buckets[bucket].missing):
                if self._parameters[group[place]].grad is None:
                    self._buckets[bucket].pieces[place].zero_()
                    unused.append(group[place])
                    self._fill(bucket, place)
                else:  # used in an earlier pass only
                    self._take(bucket, place)
        flags = torch.ones(len(self._parameters), dtype=torch.float64, device=beside.device)
        flags[unused] = 0
        self._used_here.update(set(range(len(self._parameters))) - set(unused))
        torch.cat([flags, beside], out=self._buckets[-1].pieces[0])
        self._fill(len(self._buckets) - 1, 0)
        self._shard += 1

    def wait(self) -> Tensor:
        """Give every parameter its gradient, None where no shard used it. Returns the sum of the vectors."""
        self._background.wait()
        *buckets, small = [bucket.taken() for bucket in self._buckets]
        flags, beside = small[0].split([len(self._parameters), len(small[0]) - len(self._parameters)])
        # Asking the device takes time: what was used here was used.
        used = flags.tolist() if len(self._used_here) < len(self._parameters) else None
        for pieces, group in zip(buckets, self._groups, strict=True):
            for piece, number in zip(pieces, group, strict=True):
                self._parameters[number].grad = piece if used is None or used[number] else None
        self._shard, self._sent, self._used_here = 0, 0, set()
        return beside

    def _arrived(self, bucket: int, place: int, parameter: Tensor) -> None:
        """autograd calls it when a parameter's gradient is whole."""
        if self._is_last_pass:
            self._take(bucket, place)

    def _take(self, bucket: int, place: int) -> None:
        number, parameter = self._groups[bucket][place], self._parameters[self._groups[bucket][place]]
        if place not in self._buckets[bucket].missing:
            raise TrainingError(
                f"a gradient of shape {tuple(parameter.shape)} (parameter {number}) came twice in one backward pass, as re-entrant "
                "checkpointing does; use_reentrant=False, or strategy ddp"
            )
        assert parameter.grad is not None
        self._buckets[bucket].pieces[place].copy_(parameter.grad)
        parameter.grad = None
        self._fill(bucket, place)

    def _fill(self, bucket: int, place: int) -> None:
        """A piece is there: perhaps its bucket's sums can be added, perhaps buckets can be sent."""
        filled = self._buckets[bucket]
        filled.missing.remove(place)
        if filled.missing:
            return
        filled.add(self._additions[self._shard])
        while self._shard == len(self._block) - 1 and self._sent < len(self._buckets) and not self._buckets[self._sent].missing:
            nodes = self._buckets[self._sent].nodes
            self._background.do(partial(self._meeting.finish, nodes))
            self._sent += 1


def _groups(parameters: Sequence[nn.Parameter]) -> list[list[int]]:
    """Numbers of the parameters of each bucket, the last ones first, since backward passes reach them first."""
    groups: list[list[int]] = []
    room = 0
    for number in reversed(range(len(parameters))):
        parameter = parameters[number]
        if not groups or room < parameter.nbytes or parameters[groups[-1][0]].dtype != parameter.dtype:
            groups.append([])
            room = BUCKET_BYTES
        groups[-1].append(number)
        room -= parameter.nbytes
    return groups
