"""Rows of a part are sorted by their hashes, and where those tie by what they are: never by how they arrived."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.etl.write import document_order, sort_rows

Rows = list[tuple[int, float, int]]


def read_hashes(rows: Rows) -> np.ndarray:
    return np.array([row[0] for row in rows], np.uint64)


def sort(rows: Rows, pieces: int = 1) -> list[tuple[float, bytes]]:
    columns = {
        "x": np.array_split(np.array([row[1] for row in rows], np.float32), pieces),
        "image": np.array_split(np.array([[[row[2]] * 2] * 2 for row in rows], np.uint8).reshape(-1, 2, 2), pieces),
    }
    columns_in_order, order = sort_rows(read_hashes(rows), columns)
    assert columns_in_order["x"].tobytes() == np.array([rows[row][1] for row in order], np.float32).tobytes()
    return [(x.tobytes(), image.tobytes()) for x, image in zip(columns_in_order["x"], columns_in_order["image"], strict=True)]


hashes = st.integers(0, 3) | st.integers(2**64 - 3, 2**64 - 1)
rows = st.lists(st.tuples(hashes, st.sampled_from([0.0, -0.0, 1.5, -1.5]), st.integers(0, 2)), min_size=1, max_size=60)


@given(rows, st.randoms(), st.integers(1, 4))
def test_p6_the_order_of_arrival_leaves_no_trace(random_rows: Rows, random: Random, pieces: int) -> None:
    shuffled = random.sample(random_rows, len(random_rows))
    assert sort(random_rows) == sort(shuffled, min(pieces, len(random_rows)))


@given(rows)
def test_hashes_come_before_values(random_rows: Rows) -> None:
    place = read_hashes(random_rows)
    assert sort_rows(place, {"place": [place.copy()]})[0]["place"].tolist() == sorted(place.tolist())


@given(rows, st.randoms())
def test_p6_documents_with_equal_hashes_are_in_order_of_their_bytes(random_rows: Rows, random: Random) -> None:
    def sort_documents(rows: Rows) -> list[tuple[int, bytes]]:
        documents = [np.full(1 + row[2], row[1], np.float32) for row in rows]
        return [(rows[row][0], documents[row].tobytes()) for row in document_order(read_hashes(rows), documents)]

    assert (
        sort_documents(random_rows) == sort_documents(random.sample(random_rows, len(random_rows))) == sorted(sort_documents(random_rows))
    )


@pytest.mark.parametrize("first", [0.0, -0.0])
def test_zeros_of_either_sign_hash_alike_and_still_have_an_order(first: float) -> None:
    assert sort([(7, first, 1), (7, -first, 1)]) == sort([(7, -0.0, 1), (7, 0.0, 1)])


def test_pieces_are_let_go() -> None:
    pieces = [np.arange(3.0), np.arange(2.0)]
    sort_rows(np.arange(5, dtype=np.uint64), {"x": pieces})
    assert pieces == []
