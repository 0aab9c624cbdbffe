"""The files of a dataset on disk: a folder with `state.json`, which names its shards, or one of such folders for each split.

A folder can hold other files of Arrow, such as caches of earlier computations, which are no part of the dataset.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.config.messages.words import name_list
from pipelines.data.sources.files.content import content
from pipelines.data.sources.files.files import find
from pipelines.data.sources.files.listing import File
from pipelines.errors import SourceError

STATE, SPLITS = "state.json", "dataset_dict.json"


@dataclass(frozen=True)
class DatasetFile:
    """A file of a dataset."""

    file: File
    split: str
    """The split that it is of; empty if the dataset has none."""


def find_shards(paths: Sequence[str]) -> list[DatasetFile]:
    """The shards of the datasets in some folders, in the order of their names. Raises SourceError for a folder that is no dataset, and for
    a shard that is missing."""
    return [shard for path in paths for shard in _shards_below(path.rstrip("/"))]


def _shards_below(folder: str) -> list[DatasetFile]:
    files = {file.path: file for file in find(folder)}
    root = _root(folder, list(files))
    if f"{root}/{SPLITS}" not in files:
        return _list_shards(root, files, "")
    names = _read_json(f"{root}/{SPLITS}").get("splits")
    if not isinstance(names, list) or not names:
        raise SourceError(f"{folder}: {SPLITS} names no splits; write the dataset again with save_to_disk")
    return [shard for name in names for shard in _list_shards(f"{root}/{name}", files, str(name))]


def _list_shards(folder: str, files: dict[str, File], split: str) -> list[DatasetFile]:
    if f"{folder}/{STATE}" not in files:
        raise SourceError(f"{folder} has no {STATE}, so it is no dataset that save_to_disk wrote; give the folder that it wrote")
    entries = _read_json(f"{folder}/{STATE}").get("_data_files")
    names = [entry.get("filename") for entry in entries] if isinstance(entries, list) else []
    if missing := [name for name in names if f"{folder}/{name}" not in files]:
        raise SourceError(f"{folder} lacks {name_list(missing)}, which its {STATE} names; copy the folder again")
    if not names:
        raise SourceError(f"{folder}: {STATE} names no files; write the dataset again with save_to_disk")
    return [DatasetFile(files[f"{folder}/{name}"], split) for name in names]


def _root(folder: str, paths: Sequence[str]) -> str:
    """The folder as the paths of its files begin."""
    nearest = min(paths, key=lambda path: (path.count("/"), path))
    for path in sorted(paths, key=lambda path: path.count("/")):
        if path.endswith((f"/{STATE}", f"/{SPLITS}")):
            return path.rpartition("/")[0]
    raise SourceError(f"{folder} has neither {STATE} nor {SPLITS}, but {nearest.rpartition('/')[2]}; give a folder that save_to_disk wrote")


def _read_json(path: str) -> dict[str, Any]:
    with content(path) as stream:
        text = stream.read()
    try:
        values = json.loads(text)
    except ValueError as error:
        raise SourceError(f"{path} is no JSON ({error}); write the dataset again with save_to_disk") from error
    if not isinstance(values, dict):
        raise SourceError(f"{path} is no object of JSON; write the dataset again with save_to_disk")
    return values
