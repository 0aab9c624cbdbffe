"""Writes code as one archive from which Python imports it."""

from collections.abc import Mapping
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile, ZipInfo

_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest that the format has."""
_UNIX, _READABLE_FILE = 3, 0o100644 << 16


def write_archive(package: Path, archive: Path) -> None:
    """Write all files of a package's folder to a zip file, except compiled ones. Equal files give equal bytes."""
    files = {file.relative_to(package.parent).as_posix(): file for file in package.rglob("*") if file.is_file()}
    write_zip({name: file.read_bytes() for name, file in files.items() if "__pycache__" not in name}, archive)


def write_zip(contents: Mapping[str, bytes], archive: Path) -> None:
    """Write contents by their paths to a zip file, in the order of the paths.

    They are stored as they are: versions of zlib compress to different bytes.
    """
    with ZipFile(archive, "w", ZIP_STORED) as opened:
        for name in sorted(contents):
            entry = ZipInfo(name, _TIME)
            entry.create_system, entry.external_attr = _UNIX, _READABLE_FILE
            opened.writestr(entry, contents[name])
