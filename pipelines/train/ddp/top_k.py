"""Compression `topk`: each worker sends the largest entries of its gradient, and where they are."""

import torch
import torch.distributed as dist
from torch import Tensor

from pipelines.train.ddp.flat import Flat
from pipelines.train.reduce.context import WorkerContext

BLOCK = 1024


class TopK:
    """Sends the entries of largest magnitude. Aji & Heafield 2017, "Sparse communication for distributed gradient descent"; Stich et
    al. 2018, "Sparsified SGD with memory".

    They are the largest of each block of consecutive entries, instead of the whole gradient. That takes a tenth of the time on a
    CPU, and a place within a block has two bytes; the bound of what remains is the same.
    """

    state = None

    def __init__(self, share: float, values: Flat, error: Flat, context: WorkerContext) -> None:
        """The numbers of entries are multiples of BLOCK."""
        self._sent, self._context = max(1, round(share * BLOCK)), context
        self._values, self._error = values.whole.view(-1, BLOCK), error.whole.view(-1, BLOCK)

    def exchange(self) -> None:
        places = self._values.abs().topk(self._sent, sorted=False).indices
        largest = self._values.gather(1, places)
        message = torch.cat([largest.view(torch.uint8), places.to(torch.int16).view(torch.uint8)], dim=1)
        self._error.scatter_(1, places, 0)
        self._values.zero_()
        for arrived in self._all_gather(message):  # in the same order on all workers, so that their sums are equal
            numbers, where = (part.contiguous() for part in arrived.split([4 * self._sent, 2 * self._sent], dim=1))
            self._values.scatter_add_(1, where.view(torch.int16).long(), numbers.view(torch.float32))
        self._values.div_(self._context.world_size)

    def _all_gather(self, message: Tensor) -> list[Tensor]:
        arrived = [torch.empty_like(message) for _ in range(self._context.world_size)]
        dist.all_gather(arrived, message)
        return arrived
