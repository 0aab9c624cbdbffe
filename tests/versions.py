"""Dataset versions for tests, written without Spark."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.dataset import storage
from pipelines.dataset.commit import commit
from pipelines.dataset.manifest import SPLITS, Encoded, Manifest, Split, content_digest
from pipelines.dataset.parts import RowGroup, write_part
from pipelines.dataset.schema import TensorColumn, arrow_schema, from_numpy
from pipelines.dataset.versions import Version, open_version


def write_version(
    folder: Path | str,
    splits: dict[str, list[dict[str, np.ndarray]]],
    *,
    target: str = "label",
    cardinality: dict[str, int] | None = None,
    row_group_bytes: int = 2**24,
) -> Version:
    """A version whose splits are lists of parts, each a mapping of column names to arrays of shape (rows, …)."""
    cardinality = cardinality or {}
    first = next(iter(splits.values()))[0]
    columns = tuple(
        TensorColumn(
            name=name,
            dtype=str(values.dtype),
            shape=values.shape[1:],
            role="target" if name == target else "feature",
            cardinality=cardinality.get(name),
        )
        for name, values in first.items()
    )
    filesystem, root = storage.locate(_inside(str(folder), "000000000000"))
    groups: list[RowGroup] = []
    for split, parts in splits.items():
        for number, part in enumerate(parts):
            table = pa.Table.from_arrays([from_numpy(column, part[column.name]) for column in columns], schema=arrow_schema(columns))
            storage.make_folder(filesystem, f"{root}/data-a/split={split}")
            file = f"data-a/split={split}/part-{number:05d}.parquet"
            groups += write_part(filesystem, root, file, split, number, columns, table, row_group_bytes)
    encoders = {column.name: Encoded(feature={"encoder": "identity"}, inputs=(column.name,), state={}, column=column) for column in columns}
    manifest = Manifest(
        name="test",
        version="000000000000",
        digest=content_digest(encoders, groups),
        attempt="a",
        created="2026-01-01T00:00:00+00:00",
        identity={},
        sources={},
        raw_schema="",
        encoders=encoders,
        splits={split: _summary([group for group in groups if group.split == split]) for split in SPLITS},
        rows_parsed=sum(group.rows for group in groups),
    )
    commit(filesystem, root, manifest, groups)
    return open_version(str(folder))


def _summary(groups: list[RowGroup]) -> Split:
    return Split(
        rows=sum(group.rows for group in groups),
        parts=len({group.part for group in groups}),
        row_groups=len(groups),
        bytes=sum(group.bytes for group in groups),
        decoded_bytes=0,
    )


def _inside(folder: str, name: str) -> str:
    """A path below a folder, which may be a URI with options behind a question mark."""
    path, mark, options = folder.partition("?")
    return f"{path}/{name}{mark}{options}"
