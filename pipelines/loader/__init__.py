"""A dataset version as batches: order as a pure function, reading apart from it.

1. `order`     which rows make up which step, by the `permutations` that a seed draws. NumPy only; no I/O, no state.
2. `reader`    reads a row group and checks it; never returns a wrong one.
3. `blocks`    columns of one kind lie together, in memory that is used again.
4. `windows`   decodes what the order will need next, ahead of time, in threads; or keeps the whole split.
5. `chunks`    copies rows of windows into batches, several steps at a time.
6. `transfer`  copies them to a GPU beside the computation.
7. `producer`  does all this in a thread, ahead of its use; `threads` keeps libraries from starting more in it.
8. `loader`    joins these into an iterator whose state is three integers.
"""

from pipelines.loader.blocks import ROW_NUMBERS
from pipelines.loader.loader import Batch, Loader
from pipelines.loader.order import ORDER_VERSION, Order, shards_of

__all__ = ["ORDER_VERSION", "ROW_NUMBERS", "Batch", "Loader", "Order", "shards_of"]
