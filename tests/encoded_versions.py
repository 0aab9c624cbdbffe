"""Versions of raw rows, encoded as ETL does and with the keys of their rows, without Spark."""

from collections.abc import Mapping
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fitting import gather_statistics

from pipelines.config.dataset.dataset import Dataset
from pipelines.data.features import Encoders, fit_encoders
from pipelines.data.versions.manifest import SPLITS
from pipelines.data.versions.plain import ATTEMPT, commit_arrays
from pipelines.data.versions.row_keys import KEYS, key_table, write_keys
from pipelines.data.versions.schema import schema_to_text, to_numpy
from pipelines.data.versions.versions import Version
from pipelines.etl.summary import column_profile

PARTS = 2


def encode_version(
    folder: Path,
    rows: pa.Table,
    features: Mapping[str, Any],
    target: Mapping[str, Any],
    *,
    key: str = "",
    like: Version | None = None,
    **manifest_fields: Any,
) -> Version:
    """A version of rows whose column `split` says where each belongs. Its encoders are fitted on the training split, or those of `like`."""
    dataset = Dataset.model_validate({"path": "data", "features": features, "target": target})
    by_split = {split: rows.filter(pa.compute.equal(rows["split"], split)).drop_columns(["split"]) for split in SPLITS}
    statistics = gather_statistics(dataset, by_split["train"])
    fitted = like.manifest.encoders if like else fit_encoders(dataset, statistics, by_split["train"].schema)
    parts: dict[str, list[dict[str, np.ndarray]]] = {}
    keys: dict[str, list[pa.Table]] = {}
    for split, table in by_split.items():
        encoded, refused = Encoders(fitted).encode(table)
        assert refused.null_count == len(table)
        arrays = {name: to_numpy(encoder.column, encoded[name].combine_chunks()) for name, encoder in fitted.items()}
        ends = [len(table) * part // PARTS for part in range(PARTS + 1)]
        spans = [slice(start, end) for start, end in pairwise(ends) if end > start]
        parts[split] = [{name: values[span] for name, values in arrays.items()} for span in spans]
        hashes = _hash(table, [key]) if key else None, _hash(table, table.column_names)
        keys[split] = [key_table(hashes[0][span], hashes[1][span]) for span in spans] if hashes[0] is not None else []
    profile = {column: column_profile(statistics[column]) for column in statistics}
    fields = {"raw_schema": schema_to_text(by_split["train"].schema), "profile": profile} | manifest_fields
    version = commit_arrays(str(folder), parts, dict(fitted), 2**14, **fields)
    for split, tables in keys.items():
        for number, table in enumerate(tables):
            path = Path(version.root) / f"{KEYS}-{ATTEMPT}/split={split}/part-{number:05}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_keys(version.filesystem, str(path), table)
    return version


def _hash(rows: pa.Table, columns: list[str]) -> np.ndarray:
    """int64 of shape (rows,), of the text of these columns."""
    texts = zip(*(map(repr, rows[column].to_pylist()) for column in columns), strict=True)
    return np.array([int.from_bytes(blake2b("\0".join(text).encode(), digest_size=8).digest(), "little", signed=True) for text in texts])
