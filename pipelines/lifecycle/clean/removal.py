"""Removes versions so that none is ever half there.

First the manifests get another name, from the children to their parents, so that all versions that go are gone at once. Then their folders
are emptied, the manifest last, so that whatever interrupts this, the next cleaning knows that it has to go on.
"""

from collections.abc import Iterable

from pipelines.data.versions import storage
from pipelines.data.versions.commit import read_manifest, remove_attempt
from pipelines.data.versions.versions import confirmation_time
from pipelines.errors import DatasetError
from pipelines.lifecycle.clean.stored_versions import MANIFEST, REMOVED, StoredVersion, attempt_name


def hide_version(version: StoredVersion) -> bool:
    """Give the manifest of a version another name, after which there is no such version. Returns False, and changes nothing, if somebody
    has made, confirmed or removed the version since it was read."""
    filesystem, root = version.filesystem, version.root
    try:
        manifest = read_manifest(filesystem, root)
    except DatasetError:
        return False
    if manifest is None or manifest != version.manifest or confirmation_time(filesystem, root, manifest.created) / 1e9 != version.confirmed:
        return False
    with storage.store_errors(root):
        filesystem.move(f"{root}/{MANIFEST}", f"{root}/{REMOVED}")
    return True


def empty_folder(version: StoredVersion, removed_attempt: str) -> None:
    """Remove the folder of a version without a manifest, but for the files of attempts that a running ETL may be writing there."""
    filesystem, root = version.filesystem, version.root
    removable = {removed_attempt, *version.own_attempts}
    live = {name for name, attempt in version.attempts.items() if not attempt.is_old} - removable
    entries = [entry for entry in storage.entries(filesystem, root) if attempt_name(entry.base_name) not in live]
    with storage.store_errors(root):
        for entry in sorted(entries, key=lambda entry: entry.is_file):
            if not entry.is_file:
                storage.remove_folder(filesystem, entry.path)
            elif entry.base_name != REMOVED:
                storage.remove_file(filesystem, entry.path)
        if {entry.base_name for entry in storage.entries(filesystem, root)} <= {REMOVED}:
            storage.remove_folder(filesystem, root)
        else:
            storage.remove_file(filesystem, f"{root}/{REMOVED}")


def remove_attempts(version: StoredVersion, names: Iterable[str]) -> None:
    """Remove the files of attempts at a version that stays, or that a running ETL makes, and the note of an earlier removal."""
    with storage.store_errors(version.root):
        for name in names:
            remove_attempt(version.filesystem, version.root, name)
        if version.is_removed:
            storage.remove_file(version.filesystem, f"{version.root}/{REMOVED}")
