"""A dataset version as Croissant 1.1 describes it: files with their SHA-256, and a record set for each split, from whose description
mlcroissant loads the rows. https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html

The file lies in the dataset's folder, since loaders look for the files of a set below it. A column of tensors is bytes in each row: its
dtype and shape, by which NumPy reads them, are in the description of the field."""

import json
import re
from hashlib import sha256
from typing import Any

from pyarrow.fs import FileSystem

from pipelines.config.messages.words import show_count
from pipelines.data.versions import storage
from pipelines.data.versions.manifest import RESTORE, SPLITS
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import Version
from pipelines.errors import CorruptError

CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
SUFFIX = ".croissant.json"
_TERMS = (
    *("arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileObject", "fileProperty", "fileSet"),
    *(
        "format",
        "includes",
        "isArray",
        "isLiveDataset",
        "jsonPath",
        "key",
        "md5",
        "parentField",
        "path",
        "recordSet",
        "references",
        "regex",
    ),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
)
"""Words of the format's own vocabulary that its context lists."""
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    **{prefix: f"http://mlcommons.org/croissant/{path}" for prefix, path in (("cr", ""), ("rai", "RAI/"))},
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    **{term: f"cr:{term}" for term in _TERMS},
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: {"@container": "@language"} for term in ("description", "name")},
}
_PARQUET = "application/x-parquet"


def croissant(version: Version) -> dict[str, Any]:
    """The description as JSON-LD values. Every part is read for its SHA-256. Raises CorruptError if one is gone."""
    manifest, folder = version.manifest, version.root.rpartition("/")[0]
    distribution: list[dict[str, Any]] = []
    record_sets = []
    for split in SPLITS:
        files = version.parts(split)
        if not files:
            continue
        paths = [storage.part_path(version.root, file).removeprefix(f"{folder}/") for file in files]  # some are of other versions
        distribution += [_file_object(version, folder, path) for path in paths]
        file_set = {"@type": "cr:FileSet", "@id": f"{split}-files", "name": f"{split}-files", "encodingFormat": _PARQUET, "includes": paths}
        distribution.append(file_set)
        fields = [_field(split, column) for column in version.columns]
        record_sets.append({"@type": "cr:RecordSet", "@id": split, "name": split, "description": _rows(version, split), "field": fields})
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": manifest.name,
        "description": f"Version {manifest.version} of the dataset {manifest.name}, encoded rows with the digest {manifest.digest}.",
        "version": f"0.0.0+{manifest.version}",
        "identifier": _identifier(version),
        "dateCreated": manifest.created.isoformat(),
        "distribution": distribution,
        "recordSet": record_sets,
    }


def write_croissant(version: Version) -> str:
    """Write the description into the dataset's folder, unless that of this content is there. Returns its path."""
    path = croissant_path(version.root)
    if _read_identifier(version.filesystem, path) != _identifier(version):
        storage.put_file(version.filesystem, path, json.dumps(croissant(version), indent=1).encode() + b"\n")
    return path


def croissant_path(root: str) -> str:
    """The path of the description of the version in the folder `root`."""
    return f"{root}{SUFFIX}"


def _identifier(version: Version) -> str:
    return f"sha256:{version.manifest.digest}"


def _read_identifier(filesystem: FileSystem, path: str) -> str:
    """The identifier in a description; empty if there is none, or if it is damaged."""
    try:
        return str(json.loads(storage.read(filesystem, path) or b"")["identifier"])
    except (ValueError, KeyError, TypeError):
        return ""


def _file_object(version: Version, folder: str, path: str) -> dict[str, Any]:
    content = storage.read(version.filesystem, f"{folder}/{path}")
    if content is None:
        raise CorruptError(f"{folder}/{path} is gone; {RESTORE}")
    return {
        "@type": "cr:FileObject",
        "@id": path,
        "name": re.sub(r"[^\w.-]", "-", path),
        "contentUrl": path,
        "contentSize": f"{len(content)} B",
        "encodingFormat": _PARQUET,
        "sha256": sha256(content).hexdigest(),
    }


def _field(split: str, column: TensorColumn) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{split}/{column.name}",
        "name": column.name,
        "description": _describe_column(column),
        "dataType": "sc:Text" if column.shape else "sc:Integer" if "int" in column.dtype else "sc:Float",
        "source": {"fileSet": {"@id": f"{split}-files"}, "extract": {"column": column.name}},
    }


def _describe_column(column: TensorColumn) -> str:
    """The column in words, with what NumPy needs to read the bytes of a tensor."""
    kind = f"{column.role}, {column.dtype}"
    if column.cardinality is not None:
        kind += f", index below {column.cardinality}"
    return f"{kind}, shape {list(column.shape)}: bytes, little-endian, in C order" if column.shape else kind


def _rows(version: Version, split: str) -> str:
    return show_count(version.rows(split), "row")
