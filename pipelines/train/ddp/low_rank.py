"""Compression `powersgd`: workers send low-rank factors of the matrices of a gradient."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from pipelines.train.reduce.context import WorkerContext
from pipelines.train.threads import one_thread


class Flat:
    """A flat tensor of zeros, and a view of it for each shape."""

    def __init__(self, shapes: Sequence[Sequence[int]], device: torch.device, multiple: int = 1) -> None:
        """The number of entries is padded with zeros to a `multiple`."""
        sizes = [torch.Size(shape).numel() for shape in shapes]
        sizes.append(-sum(sizes) % multiple)
        self.whole = torch.zeros(sum(sizes), device=device)
        self.pieces = [part.view(shape) for part, shape in zip(self.whole.split(sizes), shapes, strict=False)]


class LowRank:
    """PowerSGD, of the whole gradient at once. Vogels et al. 2019, "PowerSGD: practical low-rank gradient compression".

    A matrix M becomes P Qᵀ, by one iteration of the power method in each step, which begins with the Q of the step before.
    Tensors that would not shrink to less than half, such as vectors, are sent whole.

    torch's hook would do the same, but computes in callbacks, which run in the caller's thread or in one of Gloo's, whichever is
    there first. These have other numbers of threads, with which matrix products round differently: workers would part.
    """

    def __init__(self, rank: int, values: Flat, error: Flat, context: WorkerContext) -> None:
        self._context = context
        pairs = list(zip(values.pieces, error.pieces, strict=True))
        self._all_sent = [(value, error) for value, error in pairs if not _rank(_matrix(error), rank)]
        matrices = [(_matrix(value), _matrix(error)) for value, error in pairs if _rank(_matrix(error), rank)]
        # Matrices of one shape come together, as in checkpoints of runs that computed with torch's hook.
        shapes_in_order = list(dict.fromkeys(matrix.shape for matrix, _ in matrices))
        self._matrices = sorted(matrices, key=lambda pair: shapes_in_order.index(pair[0].shape))
        rows, columns = ([(matrix.shape[side], _rank(matrix, rank)) for _, matrix in self._matrices] for side in (0, 1))
        sizes = [(value.numel(),) for value, _ in self._all_sent]
        self._first_message, self._q, self._first_q = (Flat(shapes, context.device) for shapes in (rows + sizes, columns, columns))
        self._p, self._sent_whole = self._first_message.pieces[: len(rows)], self._first_message.pieces[len(rows) :]
        generator = torch.Generator().manual_seed(0)
        for q, first in zip(self._q.pieces, self._first_q.pieces, strict=True):
            q.copy_(first.copy_(torch.randn(first.shape, generator=generator)))

    @property
    def state(self) -> Tensor:
        return self._q.whole

    def exchange(self) -> None:
        for (matrix, _), p, q in zip(self._matrices, self._p, self._q.pieces, strict=True):
            torch.mm(matrix, torch.linalg.qr(q).Q, out=p)
        for (value, _), sent in zip(self._all_sent, self._sent_whole, strict=True):
            sent.copy_(value.flatten())
        dist.all_reduce(self._first_message.whole)
        with one_thread():
            for p in self._p:
                p.copy_(torch.linalg.qr(p).Q)
        for (_, error), p, q in zip(self._matrices, self._p, self._q.pieces, strict=True):
            torch.mm(error.T, p, out=q)
            error.addmm_(p, q.T, alpha=-1)  # what this worker sends; with what all send, differences from the mean would add up
        dist.all_reduce(self._q.whole)
        self._q.whole.div_(self._context.world_size)
        self._take_means()

    def _take_means(self) -> None:
        """Set the values to the means of what workers send, which each computes for itself from the same factors."""
        with one_thread():
            for (matrix, _), p, q in zip(self._matrices, self._p, self._q.pieces, strict=True):
                torch.mm(p, q.T, out=matrix)
        for (value, error), sent in zip(self._all_sent, self._sent_whole, strict=True):
            value.copy_(sent.div_(self._context.world_size).view_as(value))
            error.zero_()
        for q, first in zip(self._q.pieces, self._first_q.pieces, strict=True):
            # A column that is zero, as after a step in which a matrix was, would stay zero: it is multiplied by every later M.
            q.copy_(torch.where(q.any(dim=0), q, first))


def _matrix(piece: Tensor) -> Tensor:
    return piece.view(len(piece), -1)


def _rank(matrix: Tensor, rank: int) -> int:
    """The rank of a matrix's factors; 0 if it is sent whole."""
    own = min(*matrix.shape, rank)
    return own if 2 * own * sum(matrix.shape) < matrix.numel() else 0
