"""Globs: what they match, and listing only those folders that they can match.

A glob has `*`, `?`, `[a-z]`, `[!a-z]`, `{a*,b}`, and `**/` for any folders; a backslash takes the next character as itself.
"""

import re
from functools import cache

import bracex
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from wcmatch import glob

from pipelines.errors import SourceError

MOST_GLOBS = 1_000
_WILDCARD = re.compile(r"[*?\[{]")
_FLAGS = glob.GLOBSTAR | glob.DOTGLOB | glob.FORCEUNIX


def is_glob(path: str) -> bool:
    return bool(_WILDCARD.search(path))


def glob_root(path: str) -> str:
    """The folder below which a glob finds files; any other path itself."""
    start, *glob_part = _WILDCARD.split(path, maxsplit=1)
    return start.rpartition("/")[0] if glob_part else path


def matcher(pattern: str, below: bool = True) -> glob.WcMatcher[str]:
    """A matcher of the files that a glob matches, and of those `below` folders that it matches. Raises SourceError for too many braces."""
    globs = _expand(pattern)
    return glob.compile([*globs, *(f"{pattern}/**" for pattern in globs if below)], flags=_FLAGS, limit=0)


def entries(filesystem: FileSystem, pattern: str) -> list[FileInfo]:
    """Files and folders below the glob's root, without those in folders that it cannot match. Raises SourceError for too many braces."""
    root = glob_root(pattern)
    return _entries(filesystem, root, [tuple(one.removeprefix(f"{root}/").split("/")) for one in _expand(pattern)])


def _entries(filesystem: FileSystem, folder: str, globs: list[tuple[str, ...]]) -> list[FileInfo]:
    """`globs` are the parts of each glob's path below the folder; none are left of one that matches the folder itself."""
    is_deep = any(not parts or parts[0] == "**" for parts in globs)
    listed = filesystem.get_file_info(FileSelector(folder or "/", allow_not_found=True, recursive=is_deep))
    if is_deep:
        return listed
    below = []
    for entry in listed:
        if entry.type == FileType.Directory:
            remaining = [parts[1:] for parts in globs if _part_matcher(parts[0]).match(entry.base_name)]
            below += _entries(filesystem, entry.path, remaining) if remaining else []
    return [*listed, *below]


@cache
def _part_matcher(part: str) -> glob.WcMatcher[str]:
    return glob.compile(part, flags=_FLAGS)


def _expand(pattern: str) -> list[str]:
    """The globs without braces that one stands for."""
    try:
        return bracex.expand(pattern, keep_escapes=True, limit=MOST_GLOBS)
    except bracex.ExpansionLimitException as error:
        raise SourceError(f"{pattern}: its braces stand for more than {MOST_GLOBS:,} globs; use * in their place") from error
