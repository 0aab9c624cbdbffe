"""Dataset versions that no ETL has made: of arrays, and their config."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config import Config
from pipelines.data.versions.manifest import SPLITS
from pipelines.data.versions.plain import commit_arrays, identity_encoders
from pipelines.data.versions.schema import TensorColumn, schema_to_text
from pipelines.data.versions.versions import Version
from pipelines.errors import DatasetError
from pipelines.notebook.python_config import build_config


def write_splits(path: str, splits: Mapping[str, Mapping[str, np.ndarray]], target: str, classes: int | None) -> Version:
    """Write arrays by split and column. Raises DatasetError for columns that differ between splits, or that no version can hold."""
    first = _check_splits(splits, target)
    columns = []
    for name, array in first.items():
        settings: dict[str, Any] = {"dtype": str(array.dtype), "role": "target" if name == target else "feature"}
        cardinality = classes if name == target else None
        columns.append(TensorColumn(name=name, shape=array.shape[1:], cardinality=cardinality, **settings))
    encoders = {
        name: encoder.model_copy(update={"state": {"dtype": encoder.column.dtype, "impute": None}})
        for name, encoder in identity_encoders(tuple(columns)).items()
    }
    parts = {split: [{name: np.ascontiguousarray(array) for name, array in arrays.items()}] for split, arrays in splits.items()}
    fields = {column.name: pa.from_numpy_dtype(np.dtype(column.dtype)) for column in columns if not column.shape}
    raw_schema = schema_to_text(pa.schema(fields)) if len(fields) == len(columns) else ""
    return commit_arrays(path, parts, encoders, raw_schema=raw_schema)


def plain_config(version: Version, name: str, task: Any, **sections: Any) -> Config:
    """The config of a version's columns as they are."""
    columns = [fitted.column for fitted in version.manifest.encoders.values()]
    encoders = {column.name: {"encoder": "identity", **({"shape": column.shape} if column.shape else {})} for column in columns}
    target = version.manifest.target.name
    dataset = {"path": version.root, "target": {target: encoders.pop(target)}, "features": encoders}
    source = {"tables": {"rows": {"format": "parquet", "path": version.root}}}
    return build_config(name=name, source=source, dataset=dataset, task=task, **sections)


def _check_splits(splits: Mapping[str, Mapping[str, np.ndarray]], target: str) -> Mapping[str, np.ndarray]:
    """The arrays of the first split, after a check of all."""
    if not splits or not set(splits) <= set(SPLITS):
        raise DatasetError(f"splits are {', '.join(splits) or 'none'}; name arrays by {', '.join(SPLITS)}")
    first_split, first = next(iter(splits.items()))
    if target not in first:
        raise DatasetError(f"the target {target} is no column of the arrays, which are {', '.join(first)}; name one of these")
    for split, arrays in splits.items():
        if _forms(arrays) != _forms(first):
            raise DatasetError(f"the columns of {split} differ from those of {first_split}; give them equal names, dtypes and shapes")
        if len({len(array) for array in arrays.values()}) != 1:
            raise DatasetError(f"the columns of {split} have different numbers of rows; cut them to one length")
    return first


def _forms(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """Dtype and shape of a row of each column."""
    return {name: (array.dtype, array.shape[1:]) for name, array in arrays.items()}
