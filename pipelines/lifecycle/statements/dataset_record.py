"""A dataset version as a dependency of a model: its digest, and the digests of the pieces by which a difference gets its name."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.config import Config
from pipelines.config.features import encoder_settings
from pipelines.data.loader.order import ORDER_VERSION, Epoch, Order
from pipelines.data.versions import storage
from pipelines.data.versions.manifest import RESTORE, SPLITS, content_digest
from pipelines.data.versions.parts import RowGroup, row_group_digest
from pipelines.data.versions.row_groups import collect_row_groups
from pipelines.data.versions.rows_digest import rows_digest, sum_row_hashes
from pipelines.data.versions.schema import TensorColumn, to_numpy
from pipelines.data.versions.versions import Version
from pipelines.errors import CorruptError
from pipelines.lifecycle.statements.materials import Descriptor
from pipelines.train.run_context import train_order

DATASET, SOURCES = "dataset", "source/"
"""The name of the dependency that is the dataset version, and what those of raw tables begin with."""
CONTENT_CHECKSUMS = ("stat:",)
"""Beginnings of checksums that another copy of the same file does not have."""
_SHARDS_IN_DIGEST = 64


def dataset_descriptor(version: Version) -> Descriptor:
    """The version, with digests of each encoder with its state, and of the rows of each split in their order."""
    manifest = version.manifest
    encoders = {
        name: _json_digest([name, fitted.column.to_values(), list(fitted.inputs), fitted.feature, fitted.state])
        for name, fitted in manifest.encoders.items()
    }
    splits: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        groups = version.split_row_groups(split)
        lines = "".join(f"{group.part} {group.index} {group.rows} {group.digest}\n" for group in groups)
        splits[split] = {"rows": version.rows(split), "sha256": sha256(lines.encode()).hexdigest()}
        if (summary := manifest.splits.get(split)) and summary.rows_digest:
            splits[split]["rows_digest"] = summary.rows_digest
    annotations: dict[str, Any] = {
        "version": manifest.version,
        "created": manifest.created.isoformat(),
        "encoders": encoders,
        "splits": splits,
    }
    annotations |= {"parent": manifest.parent} if manifest.parent else {}
    annotations |= {"erasures": [erasure.certificate for erasure in manifest.erasures]} if manifest.erasures else {}
    return {"name": DATASET, "digest": {"sha256": version.digest}, "annotations": annotations}


def source_descriptors(version: Version) -> list[Descriptor]:
    """Each raw table, with a digest over the sizes and checksums of its files, sorted. Paths are not in it: elsewhere the same files lie
    elsewhere. A table whose files are only known by their modification times has no digest."""
    descriptors: list[Descriptor] = []
    for table, files in sorted(version.sources().items()):
        descriptor: Descriptor = {
            "name": f"{SOURCES}{table}",
            "annotations": {"files": len(files), "bytes": sum(file.bytes for file in files)},
        }
        if not any(file.checksum.startswith(CONTENT_CHECKSUMS) for file in files):
            descriptor["digest"] = {"sha256": _json_digest(sorted([file.bytes, file.checksum] for file in files))}
        descriptors.append(descriptor)
    return descriptors


def read_row_digests(version: Version) -> Version:
    """The version with the digests of the rows that its files hold now, and those of splits and of the version that follow from them.

    Checksums that come with a version could be those of other rows; these digests are computed anew, from every value. Of a folder of
    plain Parquet they stay as they are, and windows of documents have no digest of their set, which is of the documents.
    Raises CorruptError for a file that cannot be read."""
    manifest, groups, sums = version.manifest, list[RowGroup](), Counter[str]()
    is_plain = any(not group.checksum for group in version.row_groups[:1])
    for group in version.row_groups if not is_plain else ():
        table = _read_table(version, group)
        groups.append(replace(group, rows=table.num_rows, digest=row_group_digest(version.columns, table)))
        sums[group.split] += sum_row_hashes(version.columns, {column.name: _values(column, table) for column in version.columns})
    if is_plain:
        return version
    has_documents = any(encoder_settings(fitted.feature).packs for fitted in manifest.encoders.values())
    splits = {
        split: summary.model_copy(update={"rows_digest": rows_digest(sums[split]) if summary.rows_digest and not has_documents else ""})
        for split, summary in manifest.splits.items()
    }
    update = {"digest": content_digest(manifest.encoders, groups), "splits": splits}
    return replace(version, row_groups=collect_row_groups(groups), manifest=manifest.model_copy(update=update))


def _read_table(version: Version, group: RowGroup) -> pa.Table:
    path = storage.part_path(version.root, group.file)
    try:
        with version.filesystem.open_input_file(path) as source, pq.ParquetFile(source) as parquet:
            return parquet.read_row_group(group.index, columns=[column.name for column in version.columns], use_threads=False)
    except (OSError, KeyError, pa.ArrowException) as error:
        raise CorruptError(f"{path} cannot be read: {error}; {RESTORE}") from error


def _values(column: TensorColumn, table: pa.Table) -> np.ndarray:
    """A column of a table, shape (rows, *column.shape)."""
    return np.concatenate([to_numpy(column, chunk) for chunk in table.column(column.name).chunks])


def order_record(config: Config, version: Version) -> dict[str, Any]:
    """The arguments of the order of training rows, and a digest of the first rows of the first epoch: one window of each shard, of up to 64
    shards."""
    order = train_order(config)
    record: dict[str, Any] = {"version": ORDER_VERSION, **vars(order)}
    return record | {"sha256": _first_rows_digest(order, version)} if version.rows("train") else record


def _first_rows_digest(order: Order, version: Version) -> str:
    epoch = Epoch(order, version.split_row_groups("train").rows, 0)
    digest = sha256()
    for number in range(min(order.shards, _SHARDS_IN_DIGEST)):
        shard = epoch.shard(number)
        if len(shard.windows):
            digest.update(shard.row_numbers(0)[shard.permutation(0)].astype("<i8").tobytes())
    return digest.hexdigest()


def compare_datasets(stated: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, list[str]]:
    """Differences between two descriptors of a dataset: names of columns by `encoder state`, and of splits by `order` or `rows`."""
    before, now = stated.get("annotations", {}), present["annotations"]
    encoders, present_encoders = before.get("encoders", {}), now["encoders"]
    columns = [name for name in {**encoders, **present_encoders} if encoders.get(name) != present_encoders.get(name)]
    differences: dict[str, list[str]] = {"encoder state": columns, "order": [], "rows": []}
    for split, summary in now["splits"].items():
        other = before.get("splits", {}).get(split, {})
        sets = [values.get("rows_digest", "") for values in (other, summary)]
        has_equal_rows = other.get("rows") == summary["rows"] and (sets[0] == sets[1] or not all(sets))
        if has_equal_rows and other.get("sha256") == summary["sha256"]:
            continue
        differences["order" if has_equal_rows and all(sets) else "rows"].append(split)
    if stated["digest"] != present["digest"] and not any(differences.values()):
        differences["rows"].append("the digest of the dataset")
    return {name: places for name, places in differences.items() if places}


def _json_digest(values: Any) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
