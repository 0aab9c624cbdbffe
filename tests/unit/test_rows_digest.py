"""The digest of the set of rows: it follows from the rows alone, and every change of one alters it."""

from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.versions import rows_digest as module
from pipelines.data.versions.rows_digest import rows_digest, rows_sum, sum_document_hashes, sum_row_hashes
from pipelines.data.versions.schema import TensorColumn

COLUMNS = (TensorColumn("age", "float32"), TensorColumn("picture", "uint8", (2, 3)), TensorColumn("left", "int64", role="target"))
RANDOM = np.random.default_rng(5)


def values(rows: int) -> dict[str, np.ndarray]:
    return {
        "age": RANDOM.standard_normal(rows).astype("float32"),
        "picture": RANDOM.integers(0, 255, (rows, 2, 3), np.uint8),
        "left": RANDOM.integers(0, 2, rows),
    }


def take(rows: dict[str, np.ndarray], indices: np.ndarray) -> dict[str, np.ndarray]:
    return {name: column[indices] for name, column in rows.items()}


def test_it_is_the_sum_of_the_hashes_of_the_rows_bytes() -> None:
    rows = values(3)
    prefix = sha256(b"age float32 ()\npicture uint8 (2, 3)\nleft int64 ()").digest()
    texts = [prefix + b"".join(rows[name][row].tobytes() for name in rows) for row in range(3)]
    total = sum(int.from_bytes(sha256(text).digest(), "little") for text in texts)
    assert sum_row_hashes(COLUMNS, rows) == total % 2**256
    assert rows_digest(total) == f"{total % 2**256:064x}" and rows_sum(rows_digest(total)) == total % 2**256


@given(st.permutations(range(40)), st.integers(0, 40))
def test_p9_order_and_parts_do_not_count(order: list[int], cut: int) -> None:
    rows = take(values(40), np.arange(40))
    parts = [take(rows, np.array(order[:cut], int)), take(rows, np.array(order[cut:], int))]
    assert rows_digest(sum(sum_row_hashes(COLUMNS, part) for part in parts)) == rows_digest(sum_row_hashes(COLUMNS, rows))


def test_blocks_of_rows_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = values(100)
    expected = sum_row_hashes(COLUMNS, rows)
    monkeypatch.setattr(module, "BLOCK_BYTES", 300)
    assert sum_row_hashes(COLUMNS, rows) == expected


def test_a_row_that_is_lost_repeated_altered_or_renamed_counts() -> None:
    rows = values(20)
    altered = {name: column.copy() for name, column in rows.items()}
    altered["picture"][7, 1, 2] ^= 1
    swapped = {**rows, "age": rows["age"][::-1]}
    renamed = [TensorColumn("years", "float32"), *COLUMNS[1:]]
    digests = {
        *(sum_row_hashes(COLUMNS, take(rows, np.arange(count))) for count in (0, 19, 20)),
        sum_row_hashes(COLUMNS, take(rows, np.array([*range(20), 3]))),
        sum_row_hashes(COLUMNS, take(rows, np.array([*range(20), 3, 3]))),
        *(sum_row_hashes(COLUMNS, changed) for changed in (altered, swapped)),
        sum_row_hashes(renamed, {**rows, "years": rows["age"]}),
    }
    assert len(digests) == 8 and sum_row_hashes(COLUMNS, take(rows, np.arange(0))) == 0


def test_documents_count_before_they_are_cut_into_windows() -> None:
    documents = [np.arange(length, dtype=np.int32) for length in (5, 0, 9)]
    assert sum_document_hashes(documents) == sum_document_hashes(reversed(documents)) != sum_document_hashes(documents[:2])
    assert sum_document_hashes([np.concatenate(documents)]) != sum_document_hashes(documents)
