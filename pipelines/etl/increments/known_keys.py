"""Keeps keys unique over the rows of a parent and those that came since, by the hashes of keys that stand beside the parts."""

from collections.abc import Iterator
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config.dataset.dataset import Dataset
from pipelines.data.sources.base import distribute
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.rewrite import Removal
from pipelines.data.versions.row_keys import COLUMNS, find_rows
from pipelines.data.versions.versions import Version
from pipelines.etl.refusals import SUPERSEDED, accepted_rows, refuse
from pipelines.etl.splits.split_assignment import CONTENT, NEWEST, ROW, exact_column, refuse_repeats, repeat_reason

_LOSES = "__loses"
ROWS_PER_TASK = 4_000_000
"""Keys that a task reads, at least: the small parts of many nights would cost more for their tasks than for their keys."""


def compare_keys(rows: DataFrame, key: tuple[str, ...], parent: Version) -> tuple[DataFrame, list[Removal]]:
    """Refuse new rows that lose against the parent's or against other new ones, and find the parent's rows that new ones replace. Most
    nights have neither, so only the columns of the key are read to find out."""
    if not key:
        return rows, []
    hashes = accepted_rows(rows).select(ROW).toArrow()[ROW].to_numpy()
    different = np.unique(hashes)
    known_rows = _known_keys(rows.sparkSession, different, parent)
    rows, leaving = _refuse_known(rows, key, known_rows) if len(known_rows) else (rows, known_rows)
    return refuse_repeats(rows, key) if len(different) < len(hashes) else rows, _removals(parent, leaving)


def _refuse_known(rows: DataFrame, key: tuple[str, ...], known_rows: pa.Table) -> tuple[DataFrame, pa.Table]:
    """Refuse new rows that lose against the parent's, and return the parent's that lose. The newer one stays, or else the one whose content
    has the smaller hash."""
    columns = [name for name in (ROW, CONTENT, NEWEST) if name in rows.columns]
    new = _first_of_each_key(accepted_rows(rows).select(*columns).toArrow().rename_columns(list(COLUMNS[: len(columns)])))
    joined = known_rows.join(new, "row", right_suffix="_new", join_type="left outer")
    new_wins = pa.array(_new_wins(joined))
    leaving, losers = joined.filter(new_wins), joined.filter(pc.invert(new_wins))["row"].unique().to_pylist()
    if not losers:
        return rows, leaving
    losing = F.broadcast(rows.sparkSession.createDataFrame([(row, True) for row in losers], f"{ROW} long, {_LOSES} boolean"))
    reason = SUPERSEDED if NEWEST in columns else repeat_reason(key)
    refused = refuse(rows.join(losing, ROW, "left"), F.when(F.col(_LOSES), F.lit(reason)))
    return refused.select(*map(exact_column, rows.columns)), leaving


def _first_of_each_key(keys: pa.Table) -> pa.Table:
    """Of new rows with one key, the one that an ETL in full would keep."""
    directions = {"row": "ascending", "newest": "descending", "content": "ascending"}
    ordered = keys.sort_by([(name, directions[name]) for name in ("row", "newest", "content") if name in keys.column_names])
    rows = ordered["row"].to_numpy()
    return ordered.filter(pa.array(np.concatenate([np.ones(min(len(rows), 1), bool), rows[1:] != rows[:-1]])))


def _new_wins(joined: pa.Table) -> np.ndarray:
    """bool, shape (rows,): whether the new row stays, of pairs of a new row, whose columns end in `_new`, and one of the parent."""
    new, old = joined["content_new"].to_numpy(), joined["content"].to_numpy()
    wins = new < old
    if "newest_new" in joined.column_names:
        new, old = joined["newest_new"].to_numpy(), joined["newest"].to_numpy()
        wins = (new > old) | ((new == old) & wins)
    return np.asarray(wins)


def _known_keys(spark: SparkSession, hashes: np.ndarray, parent: Version) -> pa.Table:
    """The keys of the parent that are among `hashes`, int64 and ascending, with their part and their place in it."""
    find = partial(_find_keys, spark.sparkContext.broadcast(hashes), parent.filesystem, parent.root)
    parts = list(parent.groups_by_part().values()) if len(hashes) else []
    tasks = max(spark.sparkContext.defaultParallelism, int(parent.row_groups.stored_rows.sum()) // ROWS_PER_TASK)
    work = [list(chain.from_iterable(parts[number::tasks])) for number in range(min(tasks, len(parts)))]
    columns = f"{', '.join(f'{name} long' for name in COLUMNS)}, part string, place long"
    return distribute(spark, work, find, columns).toArrow()


def _find_keys(new_hashes: Broadcast, filesystem: FileSystem, root: str, groups: list[RowGroup]) -> Iterator[pa.RecordBatch]:
    for part, places, chosen in find_rows(filesystem, root, groups, new_hashes.value):
        newest = chosen["newest"] if "newest" in chosen.column_names else pa.nulls(len(chosen), pa.int64())
        columns = [chosen["row"], chosen["content"], newest, pa.repeat(part, len(chosen)), pa.array(places)]
        yield from pa.table(columns, names=[*COLUMNS, "part", "place"]).to_batches()


def _removals(parent: Version, leaving: pa.Table) -> list[Removal]:
    """The rows that leave each part, from columns `part` and `place`."""
    places: dict[str, set[int]] = {}
    for part, place in zip(leaving["part"].to_pylist(), leaving["place"].to_pylist(), strict=True):
        places.setdefault(part, set()).add(place)
    groups = parent.groups_by_part()
    return [Removal(groups[part], tuple(sorted(rows))) for part, rows in sorted(places.items())]


def key_columns(dataset: Dataset) -> tuple[str, ...]:
    """The columns of rows that are kept beside the parts, in the order of `row_keys.COLUMNS`; none without a key."""
    return (ROW, CONTENT, *([NEWEST] if dataset.newest else [])) if dataset.key else ()
