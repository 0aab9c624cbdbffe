"""Sorts the rows of a part by their hashes, and rows with equal hashes by their encoded bytes."""

import numpy as np

from pipelines.runtime import philox


def sort_rows(place: np.ndarray, content: np.ndarray, columns: dict[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
    """Sort encoded columns, given in pieces along the rows, by `place` and then by `content`, uint64 of shape (rows,).

    Empties the lists to avoid holding a part twice. Rows with equal hashes are usually equal, but −0 and 0, or nested NULLs, have the
    same hash: then the bytes decide, so that the result never depends on the order of arrival.
    """
    order = row_order(place, content)
    sorted_columns = {}
    for name, pieces in columns.items():
        values = np.concatenate(pieces)
        pieces.clear()
        sorted_columns[name] = values[order]
    _settle(_repeats(place[order]) & _repeats(content[order]), sorted_columns)
    return sorted_columns


def row_order(place: np.ndarray, content: np.ndarray) -> np.ndarray:
    """The indices of the rows, sorted by `place` and then by `content`."""
    order = np.argsort(place)
    return np.lexsort((content, place)) if _repeats(place[order]).any() else order


def window_permutation(rows: int) -> np.ndarray:
    """A random permutation of range(rows), the same one each time."""
    return np.argsort(philox.random_words(rows, key=rows), kind="stable")


def _repeats(values: np.ndarray) -> np.ndarray:
    """bool, shape (rows,): whether a sorted value equals the one before it."""
    return np.concatenate([[False], values[1:] == values[:-1]]) if len(values) else np.empty(0, bool)


def _settle(is_repeat: np.ndarray, columns: dict[str, np.ndarray]) -> None:
    """Sort, in place, the runs of rows that are `is_repeat` the row before them, where such rows differ."""
    later_rows = np.flatnonzero(is_repeat)
    if not len(later_rows):
        return
    rows = {name: values.reshape(len(values), -1).view(np.uint8) for name, values in columns.items()}
    differ = np.zeros(len(later_rows), bool)
    for bytes_of_column in rows.values():
        differ |= (bytes_of_column[later_rows] != bytes_of_column[later_rows - 1]).any(axis=1)
    starts = np.flatnonzero(~is_repeat)
    runs = np.unique(np.searchsorted(starts, later_rows[differ], side="right") - 1)
    ends = np.append(starts[1:], len(is_repeat))
    for start, end in zip(starts[runs], ends[runs], strict=True):
        run = [b"".join(bytes_of_column[row].tobytes() for bytes_of_column in rows.values()) for row in range(start, end)]
        order = start + np.array(sorted(range(end - start), key=run.__getitem__))
        for values in columns.values():
            values[start:end] = values[order]
