"""The files of a raw table: found, and cut into byte ranges.

A path is a file, a folder (its files at any depth), a glob (`*`, `?`, `[a-z]`, `{a,b}`), or a URI of one of these, or
package://name/file for a file inside an installed Python package. Names that start with `_` or `.` are hidden, as in
Spark.
"""

import re
from dataclasses import dataclass

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from pipelines.errors import SourceError
from pipelines.etl.content import PACKAGE, locate, naming, open_file, splits


@dataclass(frozen=True)
class File:
    """A file when it was found. `content.open_file` opens it, on any machine."""

    path: str
    """Absolute, or a URI."""
    bytes: int
    modified: str
    """Time of the last change as its file system knows it; empty where it does not."""


@dataclass(frozen=True)
class Range:
    """Bytes [start, stop) of a file: whatever lines begin there."""

    file: File
    start: int
    stop: int


def find(path: str | tuple[str, ...]) -> list[File]:
    """All files of a table's path or paths, sorted, each once. Raises SourceError if one of the paths leads to none."""
    found = {file.path: file for one in ([path] if isinstance(path, str) else path) for file in _find(one)}
    return [found[name] for name in sorted(found)]


def ranges(found: list[File], range_bytes: int, split: bool = True) -> list[list[Range]]:
    """The files, cut where that is possible if `split`, and collected so that each list has `range_bytes`, about."""
    lists: list[list[Range]] = [[]]
    room = range_bytes
    for file in found:
        step = range_bytes if split and splits(file.path) else max(file.bytes, 1)
        for start in range(0, max(file.bytes, 1), step):
            piece = Range(file, start, min(start + step, file.bytes))
            if lists[-1] and piece.stop - piece.start > room:
                lists.append([])
                room = range_bytes
            lists[-1].append(piece)
            room -= piece.stop - piece.start
    return lists


def _find(path: str) -> list[File]:
    if path.startswith(PACKAGE):
        with naming(path), open_file(path) as resource:
            return [File(path, resource.size(), "")]
    filesystem, inner = locate(path)
    with naming(path):
        at = filesystem.get_file_info(inner)
        if at.type == FileType.File:
            return [_file(path, inner, at)]
        if at.type == FileType.Directory:
            found = [entry for entry in filesystem.get_file_info(FileSelector(inner, recursive=True)) if entry.is_file]
        else:
            found = _matching(filesystem, inner)
    seen = [_file(path, inner, entry) for entry in found if not _hidden(entry.path, inner)]
    if not seen:
        raise SourceError(
            f"{path}: {'no file in this folder' if at.type == FileType.Directory else 'no such file'}; give a path that exists"
        )
    return seen


def _matching(filesystem: FileSystem, pattern: str) -> list[FileInfo]:
    """Files that a glob names, and those inside folders that it names."""
    if not re.search(r"[*?\[{]", pattern):
        return []
    base = re.split(r"[*?\[{]", pattern, maxsplit=1)[0].rpartition("/")[0] or "/"
    wildcards = {"*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")", ",": "|"}
    tokens = re.findall(r"\[[^\]]*\]|.", pattern)
    regex = "".join(token if len(token) > 1 else wildcards.get(token, re.escape(token)) for token in tokens)
    found = filesystem.get_file_info(FileSelector(base, allow_not_found=True, recursive=True))
    return [entry for entry in found if entry.is_file and re.fullmatch(f"{regex}(?:/.*)?", entry.path)]


def _hidden(path: str, root: str) -> bool:
    """Whether a name on the way from `root` hides it; Hive's `_column=value` folders do not."""
    below = path.removeprefix(re.split(r"[*?\[{]", root, maxsplit=1)[0])
    return any(name.startswith(".") or (name.startswith("_") and "=" not in name) for name in below.split("/"))


def _file(path: str, inner: str, entry: FileInfo) -> File:
    """A found file under a path that `locate` understands, wherever it is opened."""
    scheme, separator, rest = path.partition("://")
    settings = rest.partition("?")
    if not separator or scheme == "file":
        name = entry.path
    else:
        authority = settings[0].partition("/")[0]
        prefix = inner.removesuffix(settings[0].partition("/")[2])
        name = f"{scheme}://{authority}/{entry.path.removeprefix(prefix)}{settings[1]}{settings[2]}"
    return File(name, entry.size or 0, entry.mtime.isoformat() if entry.mtime else "")
