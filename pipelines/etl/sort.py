"""Sorts the rows of a part by their hashes, and rows with equal hashes by their encoded bytes."""

import numpy as np

from pipelines.runtime import philox


def sort_rows(place: np.ndarray, content: np.ndarray, columns: dict[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
    """Sort encoded columns, given in pieces along the rows, by `place` and then by `content`, uint64 of shape (rows,).

    Empties the lists to avoid holding a part twice. Rows with equal hashes are usually equal, but −0 and 0, or nested NULLs, have the
    same hash: then the bytes decide, so that the result never depends on the order of arrival.
    """
    order = order_of(place, content)
    found = {}
    for name, pieces in columns.items():
        whole = np.concatenate(pieces)
        pieces.clear()
        found[name] = whole[order]
    _settle(_repeats(place[order]) & _repeats(content[order]), found)
    return found


def order_of(place: np.ndarray, content: np.ndarray) -> np.ndarray:
    """The indices of the rows, sorted by `place` and then by `content`."""
    order = np.argsort(place)
    return np.lexsort((content, place)) if _repeats(place[order]).any() else order


def shuffled(rows: int) -> np.ndarray:
    """A random permutation of range(rows), the same one each time."""
    return np.argsort(philox.words(rows, key=rows), kind="stable")


def _repeats(values: np.ndarray) -> np.ndarray:
    """bool, shape (rows,): whether a sorted value equals the one before it."""
    return np.concatenate([[False], values[1:] == values[:-1]]) if len(values) else np.empty(0, bool)


def _settle(alike: np.ndarray, columns: dict[str, np.ndarray]) -> None:
    """Sort, in place, the runs of rows that are `alike` the row before them, where such rows differ."""
    second = np.flatnonzero(alike)
    if not len(second):
        return
    rows = {name: values.reshape(len(values), -1).view(np.uint8) for name, values in columns.items()}
    differ = np.zeros(len(second), bool)
    for found in rows.values():
        differ |= (found[second] != found[second - 1]).any(axis=1)
    starts = np.flatnonzero(~alike)
    runs = np.unique(np.searchsorted(starts, second[differ], side="right") - 1)
    ends = np.append(starts[1:], len(alike))
    for start, end in zip(starts[runs], ends[runs], strict=True):
        run = [b"".join(found[row].tobytes() for found in rows.values()) for row in range(start, end)]
        order = start + np.array(sorted(range(end - start), key=run.__getitem__))
        for values in columns.values():
            values[start:end] = values[order]
