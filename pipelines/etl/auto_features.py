"""Chooses the encoders of `auto` features, by a sample of the training split.

The sample is the rows of smallest hash, so files, partitions and cores have no influence, nor has which rows are read first. Equal rows
have equal hashes: without a key they come all or none.
"""

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.config.dataset.dataset import Dataset
from pipelines.config.features.base import is_pattern
from pipelines.data.features.auto.choice import Choice, auto_columns, choose, target_columns
from pipelines.data.features.auto.patterns import column_kind, name_columns
from pipelines.data.features.raw import null_invalid
from pipelines.data.sources.spark_sql import quote_name
from pipelines.etl.refusals import accepted_rows
from pipelines.etl.splits.split_assignment import ROW, SPLIT, TRAIN, raw_schema

CELLS, LEAST_ROWS, MOST_ROWS = 4_000_000, 1_000, 100_000
"""Cells of the sample, and its rows. The standard error of a share is at most 0.016 in the fewest rows."""
_CELLS_OF = {"text": 16, "array": 64}
"""Cells that a value counts for, by the kind of its column; others count for one."""
_TEXT_LENGTH = 1_000
_MARGIN = 1.5
_HASH_BITS = 53
_PARTITION = "__partition"


def choose_features(rows: DataFrame, dataset: Dataset, expected_rows: int) -> Choice:
    """Name the columns of patterns, and choose encoders for `auto`. `rows` have their split. `expected_rows` is about the number of rows:
    it decides how many are looked at, and not what is chosen."""
    named = [name for name in dataset.features if not is_pattern(name)]
    schema = raw_schema(rows)
    with_names = name_columns(dataset, schema)
    autos = auto_columns(with_names)
    if not autos:
        return Choice(with_names)
    columns = list(dict.fromkeys([*autos.values(), *target_columns(with_names)]))
    return choose(with_names, named, sample_rows(rows, {column: schema.field(column).type for column in columns}, expected_rows))


def sample_rows(rows: DataFrame, kinds: dict[str, pa.DataType], expected_rows: int) -> pa.Table:
    """The rows of train with the smallest hashes of their key, in that order, with the columns of these types."""
    cells_of_row = sum(_CELLS_OF.get(column_kind(kind), 1) for kind in kinds.values())
    most = max(LEAST_ROWS, min(MOST_ROWS, CELLS // max(cells_of_row, 1)))
    # Spark would move the conditions down to the scan, and compute the hashes of all columns for each of them. There, it also compares each
    # column with each other: of 10,000 columns in tens of seconds. It moves no condition below a column that depends on the partition.
    train = accepted_rows(rows.withColumn(_PARTITION, F.spark_partition_id())).where((F.col(SPLIT) == TRAIN) & (F.col(_PARTITION) >= 0))
    share, place = min(1.0, _MARGIN * most / max(expected_rows, 1)), F.shiftrightunsigned(F.col(ROW), 64 - _HASH_BITS)
    readable = [column for column, kind in kinds.items() if column_kind(kind)]
    # SQL, since a column of thousands would take calls to Java for each; of a text, its beginning.
    columns = [
        f"substring({name}, 1, {_TEXT_LENGTH}) AS {name}" if column_kind(kinds[column]) == "text" else name
        for column, name in zip(readable, map(quote_name, readable), strict=True)
    ]
    while True:
        limit = int(share * 2**_HASH_BITS)
        table = train.where(place < limit).selectExpr(ROW, *columns).toArrow()
        if len(table) >= most or share == 1:
            break
        share = min(1.0, share * max(2.0, _MARGIN * most / max(len(table), 1)))
    order = np.argsort(table[ROW].to_numpy().view(np.uint64), kind="stable")[:most]
    valid = [pa.chunked_array(map(null_invalid, column.chunks), column.type) for column in table.take(pa.array(order)).columns]
    arrays = dict(zip(table.column_names, valid, strict=True))
    return pa.table({name: arrays[name] if name in arrays else pa.nulls(len(order), kind) for name, kind in kinds.items()})
