"""Sends gradients in fewer bytes, as `compression` says: as low-rank factors of matrices, or as the largest entries, and where they are.

`bf16` and `fp16` are torch's hooks of DistributedDataParallel, which send each bucket during the backward pass. `powersgd` and
`topk` run after it, over the whole gradient: they remember something of every entry, and DistributedDataParallel moves entries
to other buckets after the first step of a process.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook

from pipelines.train.ddp.settings import Compression
from pipelines.train.passes import one_thread
from pipelines.train.workers import WorkerContext

BLOCK = 1024
"""Consecutive entries of which `topk` sends the largest: a place among them has two bytes."""


class Flat:
    """Zeros: all entries in a flat tensor, and a view of it for each shape."""

    def __init__(self, shapes: Sequence[Sequence[int]], device: torch.device, multiple: int = 1) -> None:
        """The number of entries is padded with zeros to a `multiple`."""
        sizes = [torch.Size(shape).numel() for shape in shapes]
        sizes.append(-sum(sizes) % multiple)
        self.entries = torch.zeros(sum(sizes), device=device)
        self.pieces = [part.view(shape) for part, shape in zip(self.entries.split(sizes), shapes, strict=False)]


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
        return self._q.entries

    def exchange(self) -> None:
        for (matrix, _), p, q in zip(self._matrices, self._p, self._q.pieces, strict=True):
            torch.mm(matrix, torch.linalg.qr(q).Q, out=p)
        for (value, _), sent in zip(self._all_sent, self._sent_whole, strict=True):
            sent.copy_(value.flatten())
        dist.all_reduce(self._first_message.entries)
        with one_thread():
            for p in self._p:
                p.copy_(torch.linalg.qr(p).Q)
        for (_, error), p, q in zip(self._matrices, self._p, self._q.pieces, strict=True):
            torch.mm(error.T, p, out=q)
            error.addmm_(p, q.T, alpha=-1)  # what this worker sends; with what all send, differences from the mean would add up
        dist.all_reduce(self._q.entries)
        self._q.entries.div_(self._context.world_size)
        with one_thread():  # each worker computes the means of what all send for itself, from the same factors
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
    largest = min(*matrix.shape, rank)
    return largest if 2 * largest * sum(matrix.shape) < matrix.numel() else 0


def _bf16(group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """torch's hook. DistributedDataParallel refuses that by its name without NCCL, but Gloo adds bf16 too."""
    return bf16_compress_hook(group, bucket)  # type: ignore[arg-type]


HOOKS: dict[str, Callable[..., Any]] = {"bf16": _bf16, "fp16": fp16_compress_hook, "powersgd": noop_hook, "topk": noop_hook}
"""What DistributedDataParallel does with a bucket, by kind of compression."""


class Lossy(Protocol):
    """A way to send only a part of a gradient."""

    @property
    def state(self) -> Tensor | None:
        """The memory from step to step, equal on all workers; None without one."""

    def exchange(self) -> None:
        """Replace the values by the mean over workers of what they send of theirs, and take from this worker's error, which is a copy
        of its values, what it sends. Collective."""


class ErrorFeedback:
    """Exchanges gradients lossily. What is not sent is this worker's error, and becomes part of its next gradient.

    So over all steps, the sum of the gradients that were applied and the mean error of the workers is the sum of the true
    gradients. Seide et al. 2014, "1-bit stochastic gradient descent"; Stich et al. 2018, "Sparsified SGD with memory".
    """

    def __init__(self, settings: Compression, parameters: Sequence[nn.Parameter], context: WorkerContext) -> None:
        self._settings, self._context = settings, context
        self._parameters = [parameter for parameter in parameters if parameter.numel()]
        shapes = [parameter.shape or (1,) for parameter in self._parameters]
        self._values, self._error = (Flat(shapes, context.device, BLOCK) for _ in range(2))
        self._lossy: Lossy = (
            LowRank(settings.rank, self._values, self._error, context)
            if settings.kind == "powersgd"
            else TopK(settings.share, self._values, self._error, context)
        )
        self._errors_differ = self._owes = False

    @torch.no_grad()
    def reduce(self, weight: Tensor, unit: Callable[[Tensor], Tensor], number: int) -> None:
        """Replace the workers' gradients, in step `number`, by the mean of what they send. Collective.

        From the `weight` of the global batch, `unit` computes what the mean gradient has been multiplied by: a loss scale, for
        example. Errors do not have this factor, which changes from step to step. If a gradient is not finite on any worker, it
        becomes infinite on all, and errors do not change. Nor do they in a step without any weight.
        """
        if self._context.world_size == 1 and not self._owes:
            return
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        assert len(gradients) == len(self._parameters), "a parameter without a gradient has been refused"
        _copy(gradients, self._values.pieces)
        is_infinite = self._values.entries.isfinite().all().logical_not()
        if mean_over_workers(is_infinite.to(weight), self._context) > 0:
            for gradient in gradients:
                gradient.fill_(torch.inf)
        elif weight > 0:
            factor = unit(weight)
            self._values.entries.div_(factor).add_(self._error.entries)
            is_lossy = self._context.world_size > 1 and number >= self._settings.start_step
            if is_lossy:
                self._error.entries.copy_(self._values.entries)
                self._lossy.exchange()
            else:
                self._error.entries.zero_()
                mean_over_workers(self._values.entries, self._context)
            self._errors_differ = self._owes = is_lossy
            self._values.entries.mul_(factor)
            _copy(self._values.pieces, gradients)

    @torch.no_grad()
    def even_out(self) -> None:
        """Set every worker's error to the mean of all. Then a single tensor says what is not sent yet, and any number of workers
        can continue with it. Collective."""
        if self._errors_differ:
            mean_over_workers(self._error.entries, self._context)
            self._errors_differ = False

    def state_dict(self) -> dict[str, Tensor]:
        """The error, the same on all workers after `even_out`, and what the kind of compression remembers."""
        return {"error": self._error.entries, **({} if self._lossy.state is None else {self._settings.kind: self._lossy.state})}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, values in self.state_dict().items():
            values.copy_(state[name])
        self._errors_differ, self._owes = False, bool(self._error.entries.any())


def mean_over_workers(values: Tensor, context: WorkerContext) -> Tensor:
    """The mean, in place. Collective."""
    if context.world_size > 1:
        dist.all_reduce(values)
        values.div_(context.world_size)
    return values


def _copy(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source.view(target.shape))


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
        self._values, self._error = values.entries.view(-1, BLOCK), error.entries.view(-1, BLOCK)

    def exchange(self) -> None:
        places = self._values.abs().topk(self._sent, sorted=False).indices
        largest = self._values.gather(1, places)
        message = torch.cat([largest.view(torch.uint8), places.to(torch.int16).view(torch.uint8)], dim=1)
        self._error.scatter_(1, places, 0)
        self._values.zero_()
        messages = [torch.empty_like(message) for _ in range(self._context.world_size)]
        dist.all_gather(messages, message)
        for arrived in messages:  # in the same order on all workers, so that their sums are equal
            numbers, where = (part.contiguous() for part in arrived.split([4 * self._sent, 2 * self._sent], dim=1))
            self._values.scatter_add_(1, where.view(torch.int16).long(), numbers.view(torch.float32))
        self._values.div_(self._context.world_size)
