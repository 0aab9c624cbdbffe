"""Dataset versions for tests, written without Spark."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.dataset import storage
from pipelines.dataset.commit import commit
from pipelines.dataset.manifest import Encoded, Manifest, content_digest, split_summaries
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
        encoders=encoders,
        splits=split_summaries(encoders, groups),
        rows_parsed=sum(group.rows for group in groups),
    )
    commit(filesystem, root, manifest, groups)
    return open_version(str(folder))


def _inside(folder: str, name: str) -> str:
    """A path below a folder, which may be a URI with options behind a question mark."""
    path, mark, options = folder.partition("?")
    return f"{path}/{name}{mark}{options}"
