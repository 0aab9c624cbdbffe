"""Dataset versions for tests, written without Spark."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.data.versions.plain import commit_arrays, identity_encoders
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import Version


def write_version(
    folder: Path | str,
    splits: Mapping[str, Sequence[Mapping[str, np.ndarray]]],
    *,
    target: str = "label",
    cardinality: dict[str, int] | None = None,
    row_group_bytes: int = 2**24,
    **manifest_fields: Any,
) -> Version:
    """A version whose splits are lists of parts, each a mapping of column names to arrays of shape (rows, …).

    `manifest_fields` are fields of the manifest.
    """
    columns = tuple(
        TensorColumn(
            name=name,
            dtype=str(values.dtype),
            shape=values.shape[1:],
            role="target" if name == target else "feature",
            cardinality=(cardinality or {}).get(name),
        )
        for name, values in next(iter(splits.values()))[0].items()
    )
    return commit_arrays(str(folder), splits, identity_encoders(columns), row_group_bytes, **manifest_fields)
