"""Reviews of things: a text, a price and a category, of which all three decide whether somebody would buy again."""

import numpy as np
import pyarrow as pa

FILLERS = tuple(f"word{number}" for number in range(30))


def make_reviews(rows: int, seed: int) -> pa.Table:
    """Texts of 4 to 12 words; a praise counts for cheap things and against dear ones, but for books, which any praise sells."""
    random = np.random.default_rng(seed)
    price, category = random.lognormal(2, 1, rows).round(2), random.choice(["book", "game", "tool"], rows)
    is_praised = random.random(rows) < 0.5
    texts = [
        " ".join(random.permutation([*random.choice(FILLERS, random.integers(3, 12)), "splendid" if praised else "dreadful"]))
        for praised in is_praised
    ]
    buys_again = np.where(category == "book", is_praised, is_praised & (price < 8))
    return pa.table({"id": np.arange(rows), "text": texts, "price": price, "category": category, "again": buys_again})
