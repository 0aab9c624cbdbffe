"""Selects the rows that are kept as they are beside the encoded ones, so that an evaluation can show its most wrong rows."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.data.features import Encoders
from pipelines.data.features.raw import is_category
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.raw_rows import MOST_COLUMNS, MOST_ROWS
from pipelines.etl.row_sample import abridge
from pipelines.etl.splits import INTERNAL, TRAIN


@dataclass(frozen=True)
class RawRowSelection:
    key: tuple[str, ...] = ()
    splits: frozenset[int] = frozenset()
    """Indices of the splits whose rows are kept."""

    def select(self, batch: pa.RecordBatch) -> pa.Table:
        """A copy of the rows with the columns of the query, those of the key first: texts are cut, and bytes and nested values left out."""
        names = [field.name for field in batch.schema if field.name not in INTERNAL and is_category(field.type)]
        ordered = [*(name for name in self.key if name in names), *(name for name in names if name not in self.key)]
        indices = pa.array(np.arange(len(batch)))
        return pa.table({name: abridge(batch.column(name).take(indices)) for name in ordered[:MOST_COLUMNS]})


def splits_with_raw_rows(rows: dict[int, int], encoders: dict[str, FittedEncoder]) -> frozenset[int]:
    """The splits other than train with few enough rows; none if rows are packed into windows."""
    if Encoders(encoders).packer is not None:
        return frozenset()
    return frozenset(split for split, count in rows.items() if split != TRAIN and count <= MOST_ROWS)
