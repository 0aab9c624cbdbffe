"""Tables of Iceberg, written by its specification and without pyiceberg: delete files and vectors, which that does not write, and each
sequence number, partition and metadata file as a test wants it."""

import json
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

DATA, POSITIONS, EQUALITY = 0, 1, 2
ADDED, EXISTING, DELETED = 1, 0, 2
FIRST_MOMENT = 1_700_000_000_000
_PATH_ID, _POSITION_ID = 2147483546, 2147483545


def field(field_id: int, name: str, kind: Any, required: bool = False, **more: Any) -> dict[str, Any]:
    """A column of a schema."""
    return {"id": field_id, "name": name, "type": kind, "required": required, **more}


def set_ids(table: pa.Table, ids: Mapping[str, int]) -> pa.Table:
    """The table with the IDs of its columns, as Iceberg's files have them."""
    fields = [column.with_metadata({"PARQUET:field_id": str(ids[column.name])}) for column in table.schema]
    return table.cast(pa.schema(fields))


class HandmadeTable:
    """A table in a folder; each commit writes its own manifests and a metadata file."""

    def __init__(
        self, folder: Path, fields: Sequence[dict[str, Any]], version: int = 2, spec: Sequence[dict[str, Any]] = (), location: str = ""
    ) -> None:
        """The metadata name `location` in place of the folder, as those of a copied table do."""
        self.folder, self.version, self.location = folder, version, location or str(folder)
        self.uuid = str(uuid.uuid4())
        self.schemas: list[dict[str, Any]] = []
        self.specs: list[dict[str, Any]] = []
        self.snapshots: list[dict[str, Any]] = []
        self.refs: dict[str, Any] = {}
        self.properties: dict[str, str] = {}
        self.partition_types: dict[str, str] = {}
        """Avro's type of each partition field."""
        self.extra: dict[str, Any] = {}
        self.files: list[dict[str, Any]] = []
        """The live files, each with its sequence number and snapshot."""
        self.sequence = self.metadata_version = self._names = 0
        self.evolve(fields)
        self.repartition(spec)
        for name in ("data", "metadata"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def evolve(self, fields: Sequence[dict[str, Any]]) -> None:
        """A new current schema, for the snapshots from here on."""
        self.schemas.append({"type": "struct", "schema-id": len(self.schemas), "fields": list(fields)})

    def repartition(self, fields: Sequence[dict[str, Any]]) -> None:
        self.specs.append({"spec-id": len(self.specs), "fields": list(fields)})

    @property
    def path(self) -> str:
        return str(self.folder)

    def data(
        self, table: pa.Table, ids: Mapping[str, int] | None, partition: Mapping[str, Any] | None = None, **options: Any
    ) -> dict[str, Any]:
        """A data file; with `ids` None it has no field IDs."""
        path = self._new_path("parquet")
        pq.write_table(set_ids(table, ids) if ids is not None else table, path, **options)
        return self._file(DATA, path, "PARQUET", len(table), partition)

    def position_deletes(self, deletes: Mapping[str, Iterable[int]], partition: Mapping[str, Any] | None = None) -> dict[str, Any]:
        pairs = [(path, position) for path, positions in deletes.items() for position in positions]
        table = pa.table({"file_path": [path for path, _ in pairs], "pos": pa.array([position for _, position in pairs], pa.int64())})
        path = self._new_path("parquet")
        pq.write_table(set_ids(table, {"file_path": _PATH_ID, "pos": _POSITION_ID}), path)
        return self._file(POSITIONS, path, "PARQUET", len(table), partition)

    def equality_deletes(
        self, keys: pa.Table, ids: Mapping[str, int], partition: Mapping[str, Any] | None = None, equality_ids: Sequence[int] = ()
    ) -> dict[str, Any]:
        path = self._new_path("parquet")
        pq.write_table(set_ids(keys, ids), path)
        return {**self._file(EQUALITY, path, "PARQUET", len(keys), partition), "equality_ids": list(equality_ids or ids.values())}

    def vectors(self, deletes: Mapping[str, Iterable[int]], partition: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The deletion vectors of some data files, in one Puffin file."""
        path = self._new_path("puffin")
        content, blobs, files = b"PFA1", [], []
        for data_path, positions in deletes.items():
            bitmap = BitMap64(positions)
            body = b"\xd1\xd3\x39\x64" + bitmap.serialize()
            blob = struct.pack(">I", len(body)) + body + struct.pack(">I", crc32(body))
            properties = {"referenced-data-file": data_path, "cardinality": str(len(bitmap))}
            blobs.append(
                {"type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1}
                | {"offset": len(content), "length": len(blob), "properties": properties}
            )
            entry = self._file(POSITIONS, path, "PUFFIN", len(bitmap), partition)
            files.append({**entry, "referenced_data_file": data_path, "content_offset": len(content), "content_size_in_bytes": len(blob)})
            content += blob
        payload = json.dumps({"blobs": blobs, "properties": {}}).encode()
        content += b"PFA1" + payload + struct.pack("<i", len(payload)) + bytes(4) + b"PFA1"
        Path(path).write_bytes(content)
        return [{**file, "file_size_in_bytes": len(content)} for file in files]

    def commit(
        self,
        operation: str,
        added: Sequence[dict[str, Any]] = (),
        removed: Sequence[dict[str, Any]] = (),
        keeps_sequence: int | None = None,
    ) -> int:
        """A snapshot after the current one. A compaction gives the files that it adds the sequence number `keeps_sequence`."""
        self.sequence += 1
        snapshot_id = 1_000_000_000_000_000_000 + self.sequence
        sequence = self.sequence if keeps_sequence is None else keeps_sequence
        removed_keys = {(file["file_path"], file.get("content_offset")) for file in removed}
        entries = []
        for file in self.files:
            is_gone = (file["file_path"], file.get("content_offset")) in removed_keys
            entries.append({**file, "status": DELETED, "snapshot_id": snapshot_id} if is_gone else {**file, "status": EXISTING})
        entries += [{**file, "status": ADDED, "snapshot_id": snapshot_id, "sequence_number": sequence} for file in added]
        manifests = []
        groups = sorted({(entry["content"] != DATA, entry["spec_id"]) for entry in entries})
        for is_delete, spec_id in groups:
            group = [entry for entry in entries if (entry["content"] != DATA, entry["spec_id"]) == (is_delete, spec_id)]
            manifests.append(self._write_manifest(group, is_delete, spec_id, snapshot_id))
        self.files = [entry for entry in entries if entry["status"] != DELETED]
        parent = self.snapshots[-1]["snapshot-id"] if self.snapshots else None
        self.snapshots.append(
            {"snapshot-id": snapshot_id, "sequence-number": self.sequence, "timestamp-ms": FIRST_MOMENT + self.sequence}
            | ({"parent-snapshot-id": parent} if parent else {})
            | ({"first-row-id": 0, "added-rows": 0} if self.version == 3 else {})
            | {"manifest-list": self._write_manifest_list(manifests, snapshot_id), "summary": {"operation": operation}}
            | {"schema-id": len(self.schemas) - 1}
        )
        self.write_metadata()
        return snapshot_id

    def write_metadata(self) -> Path:
        """A new metadata file with the state of the table, and the hint that names it."""
        self.metadata_version += 1
        current = self.snapshots[-1]["snapshot-id"] if self.snapshots else -1
        document = {
            "format-version": self.version,
            "table-uuid": self.uuid,
            "location": self.location,
            "last-sequence-number": self.sequence,
            "last-updated-ms": FIRST_MOMENT + self.sequence,
            "last-column-id": 1_000,
            "current-schema-id": len(self.schemas) - 1,
            "schemas": self.schemas,
            "default-spec-id": len(self.specs) - 1,
            "partition-specs": self.specs,
            "last-partition-id": 1_100,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": self.properties,
            "current-snapshot-id": current,
            "snapshots": self.snapshots,
            "snapshot-log": [],
            "metadata-log": [],
            "refs": dict(self.refs),
            **({"next-row-id": 0} if self.version == 3 else {}),
            **self.extra,
        }
        if self.snapshots:
            document["refs"]["main"] = {"snapshot-id": current, "type": "branch"}
        path = self.folder / "metadata" / f"v{self.metadata_version}.metadata.json"
        path.write_text(json.dumps(document))
        (self.folder / "metadata/version-hint.text").write_text(str(self.metadata_version))
        return path

    def _new_path(self, ending: str) -> str:
        self._names += 1
        return f"{self.path}/data/{self._names:05}-{uuid.uuid4()}.{ending}"

    def _file(self, content: int, path: str, file_format: str, records: int, partition: Mapping[str, Any] | None) -> dict[str, Any]:
        size = Path(path).stat().st_size if Path(path).exists() else 0
        return {
            "content": content,
            "file_path": self._path_in_metadata(path),
            "file_format": file_format,
            "record_count": records,
            "file_size_in_bytes": size,
            "partition": dict(partition or {}),
            "spec_id": len(self.specs) - 1 if partition is not None or content == DATA else 0,
        }

    def _write_manifest(self, entries: Sequence[dict[str, Any]], is_delete: bool, spec_id: int, snapshot_id: int) -> dict[str, Any]:
        spec = self.specs[spec_id]
        partition = [
            _avro(part["name"], ["null", json.loads(self.partition_types.get(part["name"], '"string"'))], part["field-id"])
            for part in spec["fields"]
        ]
        file_fields = [
            *(_avro("content", "int", 134), _avro("file_path", "string", 100), _avro("file_format", "string", 101)),
            _avro("partition", {"type": "record", "name": "r102", "fields": partition}, 102),
            *(_avro("record_count", "long", 103), _avro("file_size_in_bytes", "long", 104)),
            _avro("equality_ids", ["null", {"type": "array", "items": "int", "element-id": 136}], 135),
            _avro("referenced_data_file", ["null", "string"], 143),
            *(
                (_avro("content_offset", ["null", "long"], 144), _avro("content_size_in_bytes", ["null", "long"], 145))
                if self.version == 3
                else ()
            ),
        ]
        schema = {
            "type": "record",
            "name": "manifest_entry",
            "fields": [
                *(_avro("status", "int", 0), _avro("snapshot_id", ["null", "long"], 1), _avro("sequence_number", ["null", "long"], 3)),
                _avro("file_sequence_number", ["null", "long"], 4),
                _avro("data_file", {"type": "record", "name": "r2", "fields": file_fields}, 2),
            ],
        }
        records = []
        for entry in entries:
            # A file that a commit adds inherits the number of the commit.
            is_inherited = entry["status"] == ADDED and entry["sequence_number"] == self.sequence
            sequence = None if is_inherited else entry["sequence_number"]
            data_file = {name: entry.get(name) for name in (part["name"] for part in file_fields)}
            records.append(
                {**{name: entry[name] for name in ("status", "snapshot_id")}, "sequence_number": sequence, "data_file": data_file}
            )
        path = f"{self.path}/metadata/{uuid.uuid4()}.avro"
        metadata = {
            "schema": json.dumps(self.schemas[-1]), "schema-id": str(len(self.schemas) - 1), "partition-spec": json.dumps(spec["fields"]),
            "partition-spec-id": str(spec_id), "format-version": str(self.version), "content": "deletes" if is_delete else "data",
        }  # fmt: skip
        _write_avro(path, schema, records, metadata)
        counts = {status: sum(entry["status"] == status for entry in entries) for status in (ADDED, EXISTING, DELETED)}
        return {
            "manifest_path": self._path_in_metadata(path),
            "manifest_length": Path(path).stat().st_size,
            "partition_spec_id": spec_id,
            "content": int(is_delete),
            "sequence_number": self.sequence,
            "min_sequence_number": min(entry["sequence_number"] for entry in entries),
            "added_snapshot_id": snapshot_id,
            "added_files_count": counts[ADDED],
            "existing_files_count": counts[EXISTING],
            "deleted_files_count": counts[DELETED],
            "added_rows_count": 0,
            "existing_rows_count": 0,
            "deleted_rows_count": 0,
        }

    def _write_manifest_list(self, manifests: Sequence[dict[str, Any]], snapshot_id: int) -> str:
        ids = {
            "manifest_path": 500, "manifest_length": 501, "partition_spec_id": 502, "content": 517, "sequence_number": 515,
            "min_sequence_number": 516, "added_snapshot_id": 503, "added_files_count": 504, "existing_files_count": 505,
            "deleted_files_count": 506, "added_rows_count": 512, "existing_rows_count": 513, "deleted_rows_count": 514,
        }  # fmt: skip
        kinds = {"manifest_path": "string", "partition_spec_id": "int", "content": "int"}
        kinds |= {name: "int" for name in ids if name.endswith("files_count")}
        fields = [_avro(name, kinds.get(name, "long"), number) for name, number in ids.items()]
        path = f"{self.path}/metadata/snap-{snapshot_id}.avro"
        metadata = {"format-version": str(self.version), "snapshot-id": str(snapshot_id), "sequence-number": str(self.sequence)}
        _write_avro(path, {"type": "record", "name": "manifest_file", "fields": fields}, manifests, metadata)
        return self._path_in_metadata(path)

    def _path_in_metadata(self, path: str) -> str:
        return self.location + path.removeprefix(self.path)


def _avro(name: str, kind: Any, field_id: int) -> dict[str, Any]:
    is_optional = isinstance(kind, list)
    return {"name": name, "type": kind, "field-id": field_id, **({"default": None} if is_optional else {})}


def _write_avro(path: str, schema: dict[str, Any], records: Iterable[Mapping[str, Any]], metadata: Mapping[str, str]) -> None:
    with open(path, "wb") as stream:
        fastavro.writer(stream, fastavro.parse_schema(schema), list(records), codec="deflate", metadata=dict(metadata))
