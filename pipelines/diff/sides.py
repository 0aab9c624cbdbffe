"""Finds what is compared: versions by their folders or that of their dataset, and the folders of predictions."""

from pyarrow.fs import FileType

from pipelines.data.versions import storage
from pipelines.data.versions.commit import read_manifest
from pipelines.data.versions.versions import Version, open_named_version, open_version, versions
from pipelines.errors import DatasetError

_MOST_FOLDERS = 100
"""Entries of a folder that are looked at, to find out whether they are predictions."""


def open_first(path: str) -> Version:
    """The version that another thing is compared with. Raises DatasetError if there is none."""
    version = find_version(path)
    if version is None:
        raise DatasetError(f"{path} holds no dataset version; give the folder of a version, or of a dataset that jobs/etl.py has made")
    return version


def find_version(path: str) -> Version | None:
    """The version in a folder, or the newest one of a dataset's folder; None if it is neither. Raises OutdatedError or CorruptError for a
    version that cannot be read."""
    filesystem, place = storage.locate(path)
    is_folder = storage.ask(filesystem, place).type == FileType.Directory
    if is_folder and (read_manifest(filesystem, place) or versions(path)):
        return open_version(path)
    return None


def last_two(path: str) -> tuple[Version, Version]:
    """The newest version of a dataset's folder, behind the newest earlier one of the same pipeline. Raises DatasetError if there are not
    two."""
    entries = versions(path)
    same = [root for root, manifest in entries if manifest.name == entries[0][1].name]
    if len(same) < 2:
        number = "one version" if same else "no version"
        raise DatasetError(
            f"{path} holds {number} of a pipeline, and two are compared; name two versions, or run jobs/etl.py on newer data first"
        )
    before, now = (open_named_version(path, root.rpartition("/")[2]) for root in (same[1], same[0]))
    return before, now


def previous_version(path: str, pipeline: str, root: str) -> Version | None:
    """The newest version of a pipeline in a dataset's folder, other than that in the folder `root`; None if there is none."""
    newest = next((place for place, manifest in versions(path) if manifest.name == pipeline and place != root), None)
    return None if newest is None else open_named_version(path, newest.rpartition("/")[2])


def are_predictions(path: str) -> bool:
    """Whether a folder is one of `jobs/predict.py`, or of a snapshot in it."""
    filesystem, place = storage.locate(path)
    if storage.ask(filesystem, place).type != FileType.Directory:
        return False
    folders = [place, *(entry.path for entry in storage.entries(filesystem, place)[:_MOST_FOLDERS] if not entry.is_file)]
    manifests = (storage.unseal_or_none(text) for folder in folders if (text := storage.read(filesystem, f"{folder}/manifest.json")))
    return any(manifest is not None and "snapshot" in manifest for manifest in manifests)
