"""The certificate of an erasure: what was erased, where, who asked for it, and which models were trained on it.

It has no key, but a SHA-256 of each with a salt of the certificate: whoever has the key can find out that it is the one. Of few possible
keys, such as small numbers, anyone with the certificate can find it by trying.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from pyarrow.fs import FileSystem

from pipelines.data.versions import storage
from pipelines.data.versions.commit import read_manifest
from pipelines.data.versions.erasures import CERTIFICATE, ERASURES, read_sealed
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.parts import file_checksum
from pipelines.errors import ConfigError
from pipelines.lifecycle.erasure.erased_keys import HashedKey, Key
from pipelines.lifecycle.erasure.journal import ErasureRecord
from pipelines.lifecycle.erasure.search import dataset_key, hash_for_versions, readable_manifests

FORMAT = 1
NOTES = (
    "The files and tables that the dataset was made from are not searched: erase the rows there as well, or an ETL that reads them in full "
    "brings the rows back.",
    "Encoders and models were fitted on the erased rows, and stay; only a new ETL from sources without the rows, and a new training, are "
    "without them.",
    "A malformed record was erased if all values of a key stand in it as words.",
    "Outputs of predictions are searched where the command names them.",
)


def hash_key(record: Mapping[str, Any], salt: str) -> str:
    """`sha256:…` of the values of a key and the salt of a certificate."""
    return f"sha256:{sha256((salt + json.dumps(record, sort_keys=True)).encode()).hexdigest()}"


def hash_first_records(keys: Sequence[Key], hashed: Collection[Sequence[HashedKey | ConfigError]], salt: str) -> list[str]:
    """The hash of each key in the types of the first version that can have it: +17 and 17 are one key. `hashed` are keys by version."""
    records: list[Mapping[str, Any]] = list(keys)
    for place, key in enumerate(keys):
        typed = (version_keys[place] for version_keys in hashed)
        records[place] = next((answer.record for answer in typed if isinstance(answer, HashedKey)), key)
    return [hash_key(record, salt) for record in records]


def time_text(seconds: float) -> str:
    """A time in seconds since 1970 as text, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def certificate_path(folder: str, name: str) -> str:
    return f"{folder}/{ERASURES}/{name}{CERTIFICATE}"


def columns_with_texts(manifest: Manifest) -> list[str]:
    """The columns whose encoders keep texts of rows, such as words and categories."""
    return [name for name, fitted in manifest.encoders.items() if any(isinstance(value, str) for value in _list_elements(fitted.state))]


def _list_elements(value: Any, is_in_list: bool = False) -> list[Any]:
    """All values inside lists."""
    if isinstance(value, Mapping):
        return [leaf for inner in value.values() for leaf in _list_elements(inner, is_in_list)]
    if isinstance(value, list | tuple):
        return [leaf for inner in value for leaf in _list_elements(inner, True)]
    return [value] if is_in_list else []


def check_certificate(filesystem: FileSystem, folder: str, path: str, keys: Sequence[Key] = (), application: str = "") -> list[str]:
    """Compare a certificate with the files. Returns a line for each difference. `keys` must be among those that were erased; `application`
    is as in `hash_keys`. Raises CorruptError if the certificate was altered, DatasetError if there is none."""
    values = read_sealed(filesystem, path)
    faults = [f"the certificate is of other keys than {dict(key)}" for key in _strange_keys(filesystem, folder, values, keys, application)]
    if not values["finished"]:
        faults.append(f"old files wait for their removal until {values['due']}; run `lockstep erase CONF.yaml` then")
    present = [file for file in values["removed"] if filesystem.get_file_info(f"{folder}/{file}").is_file]
    faults += [f"{file} is there, and was to be removed" for file in present if values["finished"]]
    for name, version in values["versions"].items():
        faults += _check_version(filesystem, folder, name, version, values)
    return faults


def _strange_keys(filesystem: FileSystem, folder: str, values: Mapping[str, Any], keys: Sequence[Key], application: str) -> list[Key]:
    """The keys that a certificate is not of, as they were typed and in the types of any version that is there."""
    columns = {*values["key_columns"]}
    manifests = readable_manifests(filesystem, folder)[0] if keys else {}
    keyed = {name: manifest for name, manifest in manifests.items() if {*dataset_key(manifest)} == columns}
    hashed = hash_for_versions(keyed, keys, application)
    strange = []
    for place, key in enumerate(keys):
        typed = (version_keys[place] for version_keys in hashed.values())
        records = [key, *(answer.record for answer in typed if isinstance(answer, HashedKey))]
        if not {hash_key(record, values["salt"]) for record in records} & {*values["keys"]}:
            strange.append(key)
    return strange


def _check_version(filesystem: FileSystem, folder: str, name: str, version: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """Whether a version still descends from what the erasure made of it, and has the files that it wrote; a version that is gone does not
    contradict the certificate."""
    manifest = read_manifest(filesystem, f"{folder}/{name}")
    if manifest is None:
        return []
    digests = [erasure.digest_before for erasure in manifest.erasures] + [manifest.digest]
    places = [place for place, erasure in enumerate(manifest.erasures) if erasure.certificate == values["name"]]
    if not places:
        return [f"{name} has no record of this erasure: it was replaced by a copy from before; erase again"]
    if digests[places[0] : places[0] + 2] != [version["digest_before"], version["digest_after"]]:
        return [f"{name} has other digests than the certificate says: {version['digest_before'][:12]}, {version['digest_after'][:12]}"]
    if manifest.erasures[-1].certificate != values["name"]:
        return []  # a later erasure may have written the same parts again
    written = [(file, checksum) for file, checksum in values["written"].items() if file.startswith(f"{name}/")]
    return [
        f"{file} has another checksum than the certificate says"
        for file, expected in written
        if _checksum(filesystem, f"{folder}/{file}") != expected
    ]


def _checksum(filesystem: FileSystem, path: str) -> str:
    return file_checksum(filesystem, path) if filesystem.get_file_info(path).is_file else ""


def write_certificate(filesystem: FileSystem, folder: str, pipeline: str, record: ErasureRecord, finished: str) -> str:
    """Write the certificate of an erasure, in place of an unfinished one, and return its path. `finished` is when old files were removed;
    empty until then."""
    tracked = record.tracked or {}
    values = {
        "format": FORMAT,
        "name": record.name,
        "pipeline": pipeline,
        "asked_by": record.asked_by,
        "asked_at": record.asked_at,
        "due": time_text(record.due),
        "finished": finished,
        "salt": record.salt,
        "keys": record.key_hashes,
        "key_columns": record.key_columns,
        "versions": {name: version.model_dump(exclude={"positions"}) for name, version in record.versions.items()},
        "unsearchable": record.unsearchable,
        "removed": record.removed,
        "written": record.written,
        "predictions": record.outputs,
        "artifacts": {name: tracked[name] for name in ("removed", "rewritten", "unchanged")},
        "models": tracked["models"],
        "running": tracked["running"],
        "notes": list(NOTES),
    }
    path = certificate_path(folder, record.name)
    storage.put_file(filesystem, path, storage.seal(values))
    return path
