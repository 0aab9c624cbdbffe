"""Marks versions that a statement names, so that no cleaning removes them: who has the statement should find the version it is about."""

import json
import logging
from hashlib import sha256
from pathlib import Path

from pyarrow.fs import FileSystem

from pipelines.data.versions import storage
from pipelines.data.versions.versions import Version
from pipelines.errors import DatasetError
from pipelines.lifecycle.statements.croissant import croissant_path

log = logging.getLogger(__name__)
_MARK = "attested-"
"""Prefix of a file in a version's folder; the digest of the statement's path follows."""


def mark_attested(version: Version, statement: str | Path) -> None:
    """Note in the folder of a version that the statement in a file names it. Only warns if that folder cannot be written: the statement is
    right all the same."""
    path = str(Path(statement).absolute())
    mark = f"{version.root}/{_MARK}{sha256(path.encode()).hexdigest()[:16]}.json"
    try:
        storage.create(version.filesystem, mark, json.dumps({"statement": path}).encode() + b"\n")
    except DatasetError as error:
        log.warning("lockstep clean will not know that %s names version %s: %s", path, version.manifest.version, error)


def find_attestations(filesystem: FileSystem, folder: str, root: str) -> tuple[str, ...]:
    """Paths of the statements that name the version in `root`, and of its description in the dataset's folder."""
    marks = [entry.path for entry in storage.entries(filesystem, root) if entry.is_file and entry.base_name.startswith(_MARK)]
    statements = [_statement(filesystem, mark) for mark in marks]
    description = croissant_path(root)
    return (*statements, *([description] if filesystem.get_file_info(description).is_file else []))


def _statement(filesystem: FileSystem, mark: str) -> str:
    """The path that a mark has; that of the mark itself if somebody has altered it."""
    try:
        return str(json.loads(storage.read(filesystem, mark) or b"")["statement"])
    except (ValueError, KeyError, TypeError):
        return mark
