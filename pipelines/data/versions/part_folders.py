"""Finds the folders of parts that the indexes of a dataset refer to: versions share parts, and those of an increment lie in its parents'
folders. Nobody removes an attempt that such an index names, whatever has become of the manifest beside it."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from pipelines.data.versions import storage
from pipelines.errors import DatasetError

VERSION_NAME = re.compile(r"[0-9a-f]{12}")
INDEX = "row_groups"
"""Prefix of the file of an index; a hyphen and the attempt's name follow."""


@dataclass(frozen=True)
class PartFolder:
    """A folder of parts that an index names."""

    version: str
    """Folder of the version that has the parts; empty for the one that has the index."""
    attempt: str


def path_in_dataset(version: str, file: str) -> str:
    """The path of a part relative to the dataset's folder, from that in the index of the version in the folder `version`."""
    return posixpath.normpath(f"{version}/{file}")


def path_in_version(version: str, path: str) -> str:
    """The path of a part as the index of the version in the folder `version` has it, from that relative to the dataset's folder."""
    owner, _, file = path.partition("/")
    return file if owner == version else f"../{path}"


def part_folder(file: str) -> PartFolder:
    """The folder of a part, by its path relative to the version whose index names it."""
    *above, folder, _, _ = file.split("/") if file.count("/") >= 2 else [*file.split("/"), "", ""]
    return PartFolder(above[1] if above[:1] == [".."] and len(above) > 1 else "", folder.partition("-")[2])


def read_part_folders(filesystem: FileSystem, index: str) -> frozenset[PartFolder]:
    """The folders that an index names. Raises DatasetError if it cannot be read."""
    folders = set[PartFolder]()
    try:
        with filesystem.open_input_file(index) as source, pq.ParquetFile(source) as table:
            for batch in table.iter_batches(columns=["file"], use_threads=False):
                folders |= {part_folder(file) for file in pc.unique(batch["file"]).to_pylist()}
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DatasetError(f"{index} cannot be read: {error}; restore the file") from error
    return frozenset(folders)


@dataclass(frozen=True)
class SharedFolders:
    """The folders of parts in a dataset's folder that indexes of other versions name."""

    versions: Mapping[PartFolder, Sequence[str]]
    """The names of those versions, by folder."""
    faults: Mapping[str, str]
    """Why an index cannot be read, by its path. One may be half written, by an attempt that is at work or has died."""


def read_shared_folders(filesystem: FileSystem, folder: str) -> SharedFolders:
    """Read all indexes of a dataset, those of attempts without a manifest too."""
    versions, faults = dict[PartFolder, list[str]](), dict[str, str]()
    for version in storage.entries(filesystem, folder):
        for file in storage.entries(filesystem, version.path) if VERSION_NAME.fullmatch(version.base_name) else ():
            if not file.base_name.startswith(f"{INDEX}-"):
                continue
            try:
                named = read_part_folders(filesystem, file.path)
            except DatasetError as error:
                faults[file.path] = str(error)
                continue
            for place in named:
                if place.version:
                    versions.setdefault(place, []).append(version.base_name)
    return SharedFolders(versions, faults)
