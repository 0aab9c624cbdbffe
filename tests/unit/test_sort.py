"""Rows of a part are sorted by their hashes, and where those tie by what they are: never by how they arrived."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.etl.sort import sort_rows

Rows = list[tuple[int, int, float, int]]


def sort(rows: Rows, pieces: int = 1) -> list[tuple[float, bytes]]:
    place, content = (np.array([row[column] for row in rows], np.uint64) for column in (0, 1))
    columns = {
        "x": np.array_split(np.array([row[2] for row in rows], np.float32), pieces),
        "image": np.array_split(np.array([[[row[3]] * 2] * 2 for row in rows], np.uint8).reshape(-1, 2, 2), pieces),
    }
    columns_in_order = sort_rows(place, content, columns)
    return [(x.tobytes(), image.tobytes()) for x, image in zip(columns_in_order["x"], columns_in_order["image"], strict=True)]


hashes = st.integers(0, 3) | st.integers(2**64 - 3, 2**64 - 1)
rows = st.lists(st.tuples(hashes, hashes, st.sampled_from([0.0, -0.0, 1.5, -1.5]), st.integers(0, 2)), min_size=1, max_size=60)


@given(rows, st.randoms(), st.integers(1, 4))
def test_p6_the_order_of_arrival_leaves_no_trace(random_rows: Rows, random: Random, pieces: int) -> None:
    shuffled = random.sample(random_rows, len(random_rows))
    assert sort(random_rows) == sort(shuffled, min(pieces, len(random_rows)))


@given(rows)
def test_hashes_come_before_values(random_rows: Rows) -> None:
    by_hash = [(place, content) for place, content, _, _ in sorted(random_rows, key=lambda row: row[:2])]
    place, content = (np.array([row[column] for row in random_rows], np.uint64) for column in (0, 1))
    columns_in_order = sort_rows(place, content, {"place": [place.copy()], "content": [content.copy()]})
    assert list(zip(columns_in_order["place"].tolist(), columns_in_order["content"].tolist(), strict=True)) == by_hash


@pytest.mark.parametrize("first", [0.0, -0.0])
def test_zeros_of_either_sign_hash_alike_and_still_have_an_order(first: float) -> None:
    assert sort([(7, 7, first, 1), (7, 7, -first, 1)]) == sort([(7, 7, -0.0, 1), (7, 7, 0.0, 1)])


def test_pieces_are_let_go() -> None:
    pieces = [np.arange(3.0), np.arange(2.0)]
    sort_rows(np.arange(5, dtype=np.uint64), np.zeros(5, np.uint64), {"x": pieces})
    assert pieces == []
