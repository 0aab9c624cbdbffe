"""Compression `powersgd`: workers send low-rank factors of the matrices of a gradient."""

import torch
from torch import Tensor

from pipelines.collectives.context import WorkerContext
from pipelines.compat.torch import power_sgd, power_sgd_hook
from pipelines.errors import ConfigError
from pipelines.parallel.ddp.flat import Flat


class LowRank:
    """torch's PowerSGD, of the whole gradient at once. Vogels et al. 2019, "PowerSGD: practical low-rank gradient compression".

    A matrix M becomes P Qᵀ, by one iteration of the power method in each step, which begins with the Q of the step before.
    Tensors that would not shrink to less than half, such as vectors, are sent whole.
    """

    def __init__(self, rank: int, values: Flat, error: Flat, context: WorkerContext) -> None:
        """Raises ConfigError where torch's hook does not run."""
        if context.device.type == "cpu" and torch.cuda.is_available():
            raise ConfigError(
                "train.compression is powersgd, which torch runs only on GPUs if the machine has any; set train.use_gpu to true, or the "
                "environment variable CUDA_VISIBLE_DEVICES to an empty string"
            )
        self._values = values
        self._all_sent = [piece for piece in error.pieces if not _rank(piece.view(len(piece), -1), rank)]
        matrices = [piece.view(len(piece), -1) for piece in error.pieces if _rank(piece.view(len(piece), -1), rank)]
        # In the order in which torch's hook puts factors into its memory: matrices of one shape come together.
        seen = list(dict.fromkeys(matrix.shape for matrix in matrices))
        self._errors = sorted(matrices, key=lambda matrix: seen.index(matrix.shape))
        rows, columns = ([(matrix.shape[side], _rank(matrix, rank)) for matrix in self._errors] for side in (0, 1))
        self._p, self._q, self._first_q = (Flat(shapes, context.device) for shapes in (rows, columns, columns))
        generator = torch.Generator().manual_seed(0)
        for q, first in zip(self._q.pieces, self._first_q.pieces, strict=True):
            q.copy_(first.copy_(torch.randn(first.shape, generator=generator)))
        self._torch = power_sgd(rank, self._p.whole, self._q.whole)

    @property
    def state(self) -> Tensor:
        return self._q.whole

    def exchange(self) -> None:
        power_sgd_hook(self._torch, self).wait()
        self._take_sent_from_errors()
        for q, first in zip(self._q.pieces, self._first_q.pieces, strict=True):
            # A column that is zero, as after a step in which a matrix was, would stay zero: it is multiplied by every later M.
            q.copy_(torch.where(q.any(dim=0), q, first))

    def _take_sent_from_errors(self) -> None:
        """Take P (Mᵀ P)ᵀ from this worker's M. torch's own error feedback would take the mean over workers instead: then a worker's
        differences from the mean add up from step to step, and sums lose digits."""
        for error, p in zip(self._errors, self._p.pieces, strict=True):
            error.addmm_(p, p.T @ error, alpha=-1)
        for error in self._all_sent:
            error.zero_()

    # What torch's hook needs of a bucket.

    def index(self) -> int:
        return 0

    def buffer(self) -> Tensor:
        return self._values.whole

    def gradients(self) -> list[Tensor]:
        return self._values.pieces

    def is_last(self) -> bool:
        return True


def _rank(matrix: Tensor, rank: int) -> int:
    """The rank of a matrix's factors; 0 if the hook sends it whole."""
    own = min(*matrix.shape, rank)
    return own if 2 * own * sum(matrix.shape) < matrix.numel() else 0
