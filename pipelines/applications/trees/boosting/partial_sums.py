"""Outputs of rows by the trees of earlier epochs: an evaluation computes only the trees that have grown since the last one."""

from hashlib import blake2b

from torch import Tensor

from pipelines.applications.trees.forest import TREES_AT_ONCE, Forest


class PartialSums:
    """Sums of a forest's first trees, by the batch. Outputs have the bits of the forest's own."""

    def __init__(self, forest: Forest, most_bytes: int) -> None:
        """`most_bytes` limits the sums. Of rows beyond that, all trees are computed each time."""
        self._forest, self._most_bytes, self._bytes = forest, most_bytes, 0
        self._sums: dict[bytes, tuple[int, Tensor]] = {}
        """By the batch's digest: the number of trees, which ends a group that the forest adds at once, and their sum."""

    def outputs(self, inputs: Tensor) -> Tensor:
        """float32 of shape (rows, outputs), from float32 of shape (rows, inputs)."""
        forest, digest = self._forest, blake2b(inputs.contiguous().numpy().data).digest()
        trees, total = self._sums.get(digest, (0, forest.bias.repeat(len(inputs), 1)))
        full_groups = forest.count - forest.count % (TREES_AT_ONCE * forest.outputs)
        total = forest.add_trees(total, inputs, range(trees, full_groups))
        self._keep(digest, full_groups, total)
        return forest.add_trees(total, inputs, range(full_groups, forest.count)).float()

    def clear(self) -> None:
        """Forget all sums: the forest has other trees."""
        self._sums, self._bytes = {}, 0

    def _keep(self, digest: bytes, trees: int, total: Tensor) -> None:
        if digest not in self._sums:
            if self._bytes + total.nbytes > self._most_bytes:
                return
            self._bytes += total.nbytes
        self._sums[digest] = trees, total
