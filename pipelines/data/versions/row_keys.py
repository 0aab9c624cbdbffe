"""The hashes of the keys of a version's rows, beside its parts: what finds a row by its key, in this version and in later ones.

Where `dataset.key` is set, each part `data-<attempt>/…` has a file `keys-<attempt>/…` of the same name, with a row for each of the part's
rows, in their order. The hashes are Spark's xxhash64, so two keys may have the same one: among 10**9 rows this happens once in 37 versions.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem
from xxhash import xxh64_intdigest

from pipelines.data.versions import storage
from pipelines.data.versions.manifest import RESTORE
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.raw_inputs import side_file
from pipelines.errors import CorruptError

KEYS = "keys"
"""Prefix of the folder; a hyphen and the attempt's name follow."""
COLUMNS = ("row", "content", "newest")
"""All int64: the hash of the key, the hash of all columns of the query before they were encoded, and, where `dataset.newest` is set, how
new the row is."""
_SPARK_SEED = 42
_LOW_BITS = 22
"""Of a hash, looked up in a table that the processor's cache holds. That rules out most hashes in a tenth of the time of a search."""


def key_table(*columns: np.ndarray) -> pa.Table:
    """A table of the first of COLUMNS, from int64 arrays of shape (rows,)."""
    return pa.table(list(columns), names=list(COLUMNS[: len(columns)]))


def write_keys(filesystem: FileSystem, path: str, keys: pa.Table) -> None:
    """Write a table of COLUMNS. Hashes do not compress, and have neither dictionaries nor useful statistics."""
    pq.write_table(keys, path, filesystem=filesystem, compression="none", use_dictionary=False, write_statistics=False)


def read_keys(filesystem: FileSystem, root: str, groups: Sequence[RowGroup]) -> Iterator[tuple[str, pa.Table]]:
    """Each part of the row groups of a version, relative to it, with the keys of its rows. Raises CorruptError if a file is gone, or has
    another number of rows than the part."""
    rows: dict[str, int] = {}
    for group in groups:
        rows[group.file] = rows.get(group.file, 0) + group.stored_rows
    for part, expected in rows.items():
        path = storage.part_path(root, side_file(part, KEYS))
        try:
            with filesystem.open_input_file(path) as source:
                keys = pq.ParquetFile(source).read(use_threads=False)
        except (OSError, pa.ArrowException) as error:
            storage.ask(filesystem, path)
            raise CorruptError(f"{path}: {error}; {RESTORE}") from error
        if len(keys) != expected or {*keys.schema.names} - {*COLUMNS}:
            raise CorruptError(f"{path} has {len(keys)} rows of {', '.join(keys.schema.names)}; the part has {expected} rows: {RESTORE}")
        yield part, keys


def find_rows(
    filesystem: FileSystem, root: str, groups: Sequence[RowGroup], searched: np.ndarray
) -> Iterator[tuple[str, np.ndarray, pa.Table]]:
    """Each part of the row groups, with the places of its rows whose keys have one of the `searched` hashes, int64 and ascending, and the
    keys of these rows. Raises as `read_keys` does."""
    low_bits = np.zeros(2**_LOW_BITS, bool)
    low_bits[searched & (len(low_bits) - 1)] = True
    for part, keys in read_keys(filesystem, root, groups):
        hashes = keys["row"].to_numpy()
        likely = np.flatnonzero(low_bits[hashes & (len(low_bits) - 1)])
        nearest = np.minimum(np.searchsorted(searched, hashes[likely]), len(searched) - 1)
        places = likely[searched[nearest] == hashes[likely]]
        yield part, places, keys.take(pa.array(places))


def has_keys(filesystem: FileSystem, root: str, groups: Sequence[RowGroup]) -> bool:
    """Whether every part of the row groups has a file of keys: versions without `dataset.key` have none."""
    files = {storage.part_path(root, side_file(group.file, KEYS)) for group in groups}
    return bool(files) and all(entry.is_file for entry in filesystem.get_file_info(sorted(files)))


def hash_key_values(values: Sequence[bytes]) -> int:
    """The hash of a key, signed, from the bytes of its values in Spark's layout, none of them NULL. It is that of ETL, whose
    `split_assignment.add_identity` hashes a salt, and then for each value whether it is NULL and the value."""
    total = xxh64_intdigest(b"row", _SPARK_SEED)
    for value in values:
        total = xxh64_intdigest(value, xxh64_intdigest((0).to_bytes(4, "little"), total))
    return total - 2**64 if total >= 2**63 else total
