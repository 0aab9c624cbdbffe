"""Writes outputs of `jobs/predict.py` again without the rows of keys, where the columns of the key were kept beside the predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from pipelines.data.features.raw import python_rows, record_value
from pipelines.data.versions import storage
from pipelines.errors import DatasetError
from pipelines.lifecycle.erasure.erased_keys import Key
from pipelines.lifecycle.erasure.quarantine import find_records, read_file_rows
from pipelines.serving.batch.predictions_manifest import Predictions, snapshots


@dataclass
class PredictionErasure:
    """The changes of an erasure in one output."""

    path: str
    rows: int = 0
    """Predicted and refused rows that were erased."""
    without_key: list[str] = field(default_factory=list)
    """Files that lack a column of the key, so that they could not be searched."""
    old_files: list[str] = field(default_factory=list)
    """Files that no manifest names any more."""
    written: list[str] = field(default_factory=list)


def erase_predictions(path: str, name: str, keys: Sequence[Key], records: Sequence[Mapping[str, Any]], dry: bool) -> PredictionErasure:
    """Erase rows from an output, unless `dry`. `records` are the keys' values in JSON, `name` is that of the erasure. Raises DatasetError
    if the folder has no predictions, CorruptError if a file is damaged."""
    filesystem, folder = storage.locate(path)
    manifests = snapshots(filesystem, folder)
    if not manifests:
        raise DatasetError(f"--predictions {path} holds no predictions; give the folder that was --output of jobs/predict.py")
    outcome, replacements = PredictionErasure(path), dict[str, tuple[str, int]]()
    for file in sorted({file for manifest in manifests for file in manifest.files}):
        table = read_file_rows(filesystem, f"{folder}/{file}")
        rows = _find_rows(table, records)
        if rows is None:
            outcome.without_key.append(file)
        elif len(rows):
            replacements[file] = _write(filesystem, folder, file, name, table, rows, dry)
    for file in sorted({file for manifest in manifests for file in manifest.quarantine}):
        if result := find_records(filesystem, f"{folder}/{file}", records, keys):
            table = read_file_rows(filesystem, f"{folder}/{file}")
            replacements[file] = _write(filesystem, folder, file, name, table, np.array(result), dry)
    outcome.rows = sum(count for _, count in replacements.values())
    outcome.old_files = list(replacements)
    outcome.written = [file for file, _ in replacements.values()]
    for manifest in manifests if replacements and not dry else ():
        changed = _update_manifest(manifest, replacements)
        if changed != manifest:
            storage.put_file(filesystem, f"{folder}/{manifest.snapshot}/manifest.json", storage.seal(changed.model_dump(mode="json")))
    return outcome


def _find_rows(table: pa.Table, records: Sequence[Mapping[str, Any]]) -> np.ndarray | None:
    """The numbers of the rows of the keys; None if a column of the key is missing."""
    names = list(records[0])
    if not {*names} <= {*table.column_names}:
        return None
    key_values = {tuple(str(record[name]) for name in names) for record in records}
    rows: list[int] = []
    first = 0
    for batch in table.select(names).to_batches():
        values = python_rows(batch)
        rows += [first + place for place, row in enumerate(values) if tuple(str(record_value(row[name])) for name in names) in key_values]
        first += len(batch)
    return np.array(rows, np.int64)


def _write(filesystem: FileSystem, folder: str, file: str, name: str, table: pa.Table, rows: np.ndarray, dry: bool) -> tuple[str, int]:
    """Write a file beside the old one without the rows. Returns the new file and the number of rows that left."""
    target = f"{file.removesuffix('.parquet')}-{name}.parquet"
    if not dry:
        keep = np.ones(len(table), bool)
        keep[rows] = False
        with storage.store_errors(f"{folder}/{target}"):
            pq.write_table(table.filter(pa.array(keep)), f"{folder}/{target}", filesystem=filesystem)
    return target, len(rows)


def _update_manifest(manifest: Predictions, replacements: Mapping[str, tuple[str, int]]) -> Predictions:
    """The manifest with the new files and their rows."""
    files, quarantine = _substitute_files(manifest.files, replacements), _substitute_files(manifest.quarantine, replacements)
    fewer = sum(manifest.files.values()) - sum(files.values())
    return manifest.model_copy(update={"files": files, "quarantine": quarantine, "rows_out": manifest.rows_out - fewer})


def _substitute_files(files: Mapping[str, int], replacements: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    names = {file: replacements.get(file, (file, 0)) for file in files}
    return {new: files[file] - fewer for file, (new, fewer) in names.items()}
