"""Batches of a dataset version: a pure function gives the order, and the rest reads rows in that order.

1. `order`     computes the rows of each step by permutations that a seed decides. NumPy only; no I/O, no state.
2. `reader`    reads a row group and verifies it; never returns a wrong one.
3. `blocks`    stores scalar columns of one dtype together, in reused memory.
4. `batches`   decodes windows ahead of their use in threads, or caches the whole split. It copies rows of windows into batches, several
               steps at a time, and these to a GPU concurrently with computation. `pace` says how many threads decode at once.
5. `producer`  runs all this in a background thread.
6. `loader`    joins these into an iterator whose state is three integers.
"""

from pipelines.data.loader.loader import Batch, Loader
from pipelines.data.loader.order import ORDER_VERSION, Order, shard_range
from pipelines.data.versions.schema import ROW_NUMBERS

__all__ = ["ORDER_VERSION", "ROW_NUMBERS", "Batch", "Loader", "Order", "shard_range"]
