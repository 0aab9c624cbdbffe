"""Sorts the rows of a part by their hashes, and rows with equal hashes by their encoded bytes."""

import numpy as np

from pipelines.runtime import philox


def sort_rows(place: np.ndarray, columns: dict[str, list[np.ndarray]]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Sort encoded columns, given in pieces along the rows, by `place`, uint64 of shape (rows,). Returns them with the indices of the rows
    in that order.

    Empties the lists to avoid holding a part twice. Rows with equal hashes are usually equal, but −0 and 0, or nested NULLs, have the
    same hash: then the bytes decide, so that the result never depends on the order of arrival.
    """
    whole_columns = {}
    for name, pieces in columns.items():
        whole_columns[name] = np.concatenate(pieces)
        pieces.clear()
    order = np.argsort(place)
    _settle(_repeats(place[order]), whole_columns, order)
    return {name: whole_columns.pop(name)[order] for name in list(whole_columns)}, order


def document_order(place: np.ndarray, documents: list[np.ndarray]) -> list[int]:
    """The indices of documents, sorted by `place` and then by their bytes."""
    order = np.argsort(place)
    if not _repeats(place[order]).any():
        return list(order)
    return sorted(order, key=lambda row: (place[row], documents[row].tobytes()))


def window_permutation(rows: int) -> np.ndarray:
    """A random permutation of range(rows), the same one each time."""
    return np.argsort(philox.random_words(rows, key=rows), kind="stable")


def _repeats(values: np.ndarray) -> np.ndarray:
    """bool, shape (rows,): whether a sorted value equals the one before it."""
    return np.concatenate([[False], values[1:] == values[:-1]]) if len(values) else np.empty(0, bool)


def _settle(is_repeat: np.ndarray, columns: dict[str, np.ndarray], order: np.ndarray) -> None:
    """Sort, in place, those parts of the order whose rows have the same hash and differ. `is_repeat`, by the order, whether a row's hash is
    that of the row before it."""
    later_rows = np.flatnonzero(is_repeat)
    if not len(later_rows):
        return
    rows = {name: values.reshape(len(values), -1).view(np.uint8) for name, values in columns.items()}
    differ = np.zeros(len(later_rows), bool)
    for bytes_of_column in rows.values():
        differ |= (bytes_of_column[order[later_rows]] != bytes_of_column[order[later_rows - 1]]).any(axis=1)
    starts = np.flatnonzero(~is_repeat)
    runs = np.unique(np.searchsorted(starts, later_rows[differ], side="right") - 1)
    ends = np.append(starts[1:], len(is_repeat))
    for start, end in zip(starts[runs], ends[runs], strict=True):
        order[start:end] = sorted(order[start:end], key=lambda row: b"".join(values[row].tobytes() for values in rows.values()))
