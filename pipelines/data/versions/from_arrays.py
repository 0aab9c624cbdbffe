"""Writes arrays as a version on disk, without Spark, for benchmarks and tests."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.data.versions import storage
from pipelines.data.versions.commit import commit
from pipelines.data.versions.manifest import FittedEncoder, Manifest, content_digest, split_summaries, tensor_columns
from pipelines.data.versions.parts import RowGroup, write_part
from pipelines.data.versions.schema import arrow_schema, from_numpy
from pipelines.data.versions.versions import Version, open_version

# ETL names versions by their inputs, and attempts by a random name; here there is one of each per path.
VERSION, ATTEMPT = "0" * 12, "a"


def write_arrays(
    path: str,
    splits: Mapping[str, Sequence[Mapping[str, np.ndarray]]],
    encoders: dict[str, FittedEncoder],
    row_group_bytes: int = 16 * 2**20,
    **manifest_fields: Any,
) -> Version:
    """Write the only version of the dataset's folder `path`, and open it.

    A split is a list of parts, a part an array of shape (rows, …) for each encoder's column. `manifest_fields` are fields of the
    manifest. Raises DatasetError if the folder holds other rows already.
    """
    filesystem, folder = storage.locate(path)
    root = f"{folder}/{VERSION}"
    columns = tensor_columns(encoders)
    groups: list[RowGroup] = []
    for split, parts in splits.items():
        storage.make_folder(filesystem, f"{root}/data-{ATTEMPT}/split={split}")
        for number, part in enumerate(parts):
            file = f"data-{ATTEMPT}/split={split}/part-{number:05}.parquet"
            table = pa.Table.from_arrays([from_numpy(column, part[column.name]) for column in columns], schema=arrow_schema(columns))
            groups += write_part(filesystem, root, file, split, number, columns, table, row_group_bytes)
    manifest = Manifest(
        name="arrays",
        version=VERSION,
        digest=content_digest(encoders, groups),
        attempt=ATTEMPT,
        encoders=encoders,
        splits=split_summaries(encoders, groups),
        **manifest_fields,
    )
    commit(filesystem, root, manifest, groups)
    return open_version(path)
