"""Finds the files of a raw table, and cuts them into byte ranges.

A path is a file, a folder (its files at any depth), a glob, a URI of one of these, or package://name/file for files inside
an installed Python package. Globs are more than Spark's own readers know. Names that start with `_` or `.` are hidden, as in Spark.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from pathlib import Path

import bracex
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from wcmatch import glob
from wcmatch.glob import WcMatcher

from pipelines.data.sources.files.content import PACKAGE, file_errors, inside_package, is_splittable, locate, package_folder
from pipelines.data.sources.files.listing import COLUMNS, File, Files, Range, distinct, to_columns
from pipelines.errors import SourceError

MOST_GLOBS = 1_000
MANY_ENTRIES = 100_000
"""Files and folders that one process lists sooner than Spark starts a job."""
SELECTED_AT_ONCE = 50_000
"""Entries of a batch."""
LISTING_THREADS = 16
"""Listings at once, of which each waits for a store."""
_WILDCARD = re.compile(r"[*?\[{]")
_FLAGS = glob.GLOBSTAR | glob.DOTGLOB | glob.FORCEUNIX
# Least and most bytes that a task reads; between these limits a table is divided evenly among all cores.
TASK_BYTES = (2**20, 64 * 2**20)
OPEN_BYTES = 32 * 2**10
"""The cost of opening a file, in bytes."""


FolderLister = Callable[[list[str]], bool]
"""Takes over the listing of what lies at any depth below folders; False if nobody does it now."""
Finder = Callable[["Search", list[str]], pa.Table | None]
"""Finds the files of a search at any depth below folders, elsewhere than in this process; None if nobody does it now."""


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


def entries(filesystem: FileSystem, pattern: str, list_folders: FolderLister | None = None) -> list[FileInfo]:
    """Files and folders below the glob's root, without those in folders that it cannot match. Raises SourceError for too many braces."""

    def below(folder: str, globs: list[tuple[str, ...]]) -> list[FileInfo]:
        """`globs` are the parts of each glob's path below the folder; none are left of one that matches the folder itself."""
        is_deep = any(not parts or parts[0] == "**" for parts in globs)
        if is_deep:
            return list_tree(filesystem, folder or "/", list_folders)
        listed = list(filesystem.get_file_info(FileSelector(folder or "/", allow_not_found=True)))
        for entry in tuple(listed):
            if entry.type == FileType.Directory:
                remaining = [parts[1:] for parts in globs if _part_matcher(parts[0]).match(entry.base_name)]
                listed += below(entry.path, remaining) if remaining else []
        return listed

    root = glob_root(pattern)
    return below(root, [tuple(path.removeprefix(f"{root}/").split("/")) for path in _expand(pattern)])


@cache
def _part_matcher(part: str) -> glob.WcMatcher[str]:
    return glob.compile(part, flags=_FLAGS)


def _expand(pattern: str) -> list[str]:
    """The globs without braces that one stands for."""
    try:
        return bracex.expand(pattern, keep_escapes=True, limit=MOST_GLOBS)
    except bracex.ExpansionLimitException as error:
        raise SourceError(f"{pattern}: its braces stand for more than {MOST_GLOBS:,} globs; use * in their place") from error


@dataclass(frozen=True)
class Search:
    """A path of a table whose files are looked for, on any machine: it travels to tasks."""

    path: str
    """As the config has it."""
    inner: str
    """The path on its file system."""
    is_folder: bool

    @property
    def root(self) -> str:
        return self.inner if self.is_folder else glob_root(self.inner)

    def select(self, listed: Sequence[FileInfo]) -> Iterator[pa.RecordBatch]:
        """The files among entries below the root that the path means, with the columns of `listing`."""
        matching, exact = (None, None) if self.is_folder else (matcher(self.inner), matcher(self.inner, below=False))
        for start in range(0, len(listed), SELECTED_AT_ONCE):
            rows = [
                (_name(self.path, self.inner, entry.path), entry.size or 0, entry.mtime, _folders(entry.path, self.root, exact))
                for entry in listed[start : start + SELECTED_AT_ONCE]
                if entry.is_file and (matching is None or matching.match(entry.path)) and not _is_hidden(entry.path.removeprefix(self.root))
            ]
            columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
            yield pa.record_batch([pa.array(values, field.type) for values, field in zip(columns, COLUMNS, strict=True)], schema=COLUMNS)

    def check_links(self, listed: Iterable[FileInfo], matching: pa.Table) -> None:
        """Raises SourceError for a link to a folder that contains it, by which files would be found repeatedly."""
        if "://" in self.path and not self.path.startswith("file:"):
            return
        for link in (entry.path for entry in listed if entry.type == FileType.Directory and os.path.islink(entry.path)):
            leads_back = any(os.path.samefile(link, above) for above in Path(link).parents)
            if leads_back and pc.any(pc.starts_with(matching["path"], f"{link}/")).as_py():
                raise SourceError(f"{link}: leads back to a folder that it lies in; remove the link, or name paths that leave it out")


def list_tree(filesystem: FileSystem, folder: str, list_folders: FolderLister | None = None) -> list[FileInfo]:
    """All that lies below a folder, but for what `list_folders` takes over of large trees; nothing if it does not exist.

    The upper levels are listed until there are as many folders as threads, each of which lists one folder at any depth."""
    with ThreadPoolExecutor(LISTING_THREADS, thread_name_prefix="list") as pool:

        def list_all(folders: list[str], recursive: bool) -> list[FileInfo]:
            selectors = [FileSelector(place, allow_not_found=True, recursive=recursive) for place in folders]
            return list(chain.from_iterable(pool.map(filesystem.get_file_info, selectors)))

        listed: list[FileInfo] = []
        folders = [folder]
        while 0 < len(folders) < LISTING_THREADS:
            level = list_all(folders, recursive=False)
            listed += level
            folders = [entry.path for entry in level if entry.type == FileType.Directory]
        while folders:
            if len(listed) >= MANY_ENTRIES and list_folders is not None and list_folders(folders):
                return listed
            listed += list_all(folders[:LISTING_THREADS], recursive=True)
            folders = folders[LISTING_THREADS:]
        return listed


def find(path: str | tuple[str, ...], find_elsewhere: Finder | None = None) -> Files:
    """All files of a table's path or paths, sorted and distinct. `find_elsewhere` finds those of large trees. Raises SourceError if one of
    the paths matches none."""
    patterns = [path] if isinstance(path, str) else path
    try:
        return distinct([_find(pattern, find_elsewhere) for pattern in patterns])
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: a file's name is not UTF-8: {error.object!r}; rename it") from error


def first_duplicate(paths: Iterable[str]) -> str:
    """The first file that two of the paths hold; empty if there is none. Raises SourceError as `find` does."""
    earlier: set[str] = set()
    for path in paths:
        names = {os.path.normpath(file.path) for file in find(path)}
        if duplicates := sorted(names & earlier):
            return duplicates[0]
        earlier |= names
    return ""


def has_folders(path: str) -> bool:
    """Whether files of the path may lie in folders below it: it is not that of a single file."""
    return not path.startswith(PACKAGE) and ("://" in path or is_glob(path) or Path(locate(path)[1]).is_dir())


def would_find(path: str, place: str) -> bool:
    """Whether a file that came to be at `place`, an absolute path of this machine, would be found under a table's local path."""
    if "://" in path:
        return False
    inner = locate(path)[1]
    is_folder = Path(inner).is_dir()
    root = inner if is_folder else glob_root(inner)
    return place.startswith(f"{root}/") and not _is_hidden(place.removeprefix(root)) and (is_folder or matcher(inner).match(place))


def task_bytes(files: Sequence[File], cores: int) -> int:
    """Bytes that a task should read, including OPEN_BYTES for each file."""
    least, most = TASK_BYTES
    return max(least, min(int((to_columns(files).sizes + OPEN_BYTES).sum()) // (2 * cores), most))


def ranges(files: Sequence[File], range_bytes: int, split: bool = True) -> list[list[Range]]:
    """The files, cut where possible if `split`, and grouped into lists that cost about `range_bytes` each."""
    lists: list[list[Range]] = [[]]
    room = range_bytes
    for file in files:
        step = range_bytes if split and is_splittable(file.path) else max(file.bytes, 1)
        for start in range(0, max(file.bytes, 1), step):
            part = Range(file, start, min(start + step, file.bytes))
            cost = part.stop - part.start + OPEN_BYTES
            if lists[-1] and cost > room:
                lists.append([])
                room = range_bytes
            lists[-1].append(part)
            room -= cost
    return lists


def whole_files(files: Sequence[File], range_bytes: int) -> list[tuple[int, pa.Array]]:
    """Groups of consecutive files that cost about `range_bytes` each: the number of the first, and their paths."""
    columns = to_columns(files)
    costs = columns.sizes + OPEN_BYTES
    groups = (np.cumsum(costs) - costs // 2) // range_bytes
    starts = [*np.flatnonzero(np.diff(groups, prepend=-1)).tolist(), len(columns)]
    paths = columns.table["path"].combine_chunks()
    return [(start, paths[start:stop].take(np.arange(stop - start))) for start, stop in pairwise(starts)]


def _find(path: str, find_elsewhere: Finder | None) -> pa.Table:
    if path.startswith(PACKAGE):
        return to_columns(_package_files(path)).table
    filesystem, inner = locate(path)
    elsewhere: list[pa.Table] = []

    def take_over(folders: list[str]) -> bool:
        matching = find_elsewhere(search, folders) if find_elsewhere else None
        elsewhere.extend([] if matching is None else [matching])
        return matching is not None

    with file_errors(path):
        at = filesystem.get_file_info(inner)
        if at.type == FileType.File:
            return to_columns([File(_name(path, inner, at.path), at.size or 0, at.mtime.isoformat() if at.mtime else "")]).table
        if at.type == FileType.NotFound and not is_glob(inner):
            raise SourceError(f"{path}: no such file; give a path that exists")
        search = Search(path, inner, at.type == FileType.Directory)
        listed = list_tree(filesystem, inner, take_over) if search.is_folder else entries(filesystem, inner, take_over)
    matching = pa.concat_tables([pa.Table.from_batches(search.select(listed), COLUMNS), *elsewhere])
    if not len(matching):
        raise SourceError(f"{path}: {'no file in this folder' if search.is_folder else 'no such file'}; give a path that exists")
    search.check_links(listed, matching)
    return matching


def _package_files(path: str) -> list[File]:
    """Files inside an installed package. Raises SourceError if there are none, or one is outside the package."""
    if not is_glob(path):
        return [File(path, inside_package(path).stat().st_size, "")]
    package, _, inner = path.removeprefix(PACKAGE).partition("/")
    root, matching_glob = package_folder(path), matcher(inner)
    names = sorted(file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())
    matching = [f"{PACKAGE}{package}/{name}" for name in names if matching_glob.match(name) and not _is_hidden(name)]
    if not matching:
        raise SourceError(f"{path}: no such file in {root}; give a path that exists")
    return [File(name, inside_package(name).stat().st_size, "") for name in matching]


def _is_hidden(path: str) -> bool:
    """Whether a component of the path is a hidden name; Hive's `_column=value` folders are not."""
    return any(name.startswith(".") or (name.startswith("_") and "=" not in name) for name in path.split("/"))


def _folders(place: str, root: str, exact: WcMatcher[str] | None) -> str:
    """The folders `column=value` of a file found below `root`: as in Spark, those above what a glob matches make no columns."""
    if "=" not in place.removeprefix(root):
        return ""
    inside = place.removeprefix(root).strip("/").split("/")[:-1]
    if exact is not None:
        tops = [number for number in range(len(inside) + 1) if exact.match("/".join([root.rstrip("/"), *inside[: number + 1]]))]
        inside = [] if exact.match(place) or not tops else inside[tops[0] + 1 :]
    return "/".join(part for part in inside if "=" in part)


def _name(path: str, inner: str, place: str) -> str:
    """The path of a file that `locate` resolves on any machine, from its place on the file system of a table's path."""
    scheme, separator, location = path.partition("://")
    if not separator or scheme == "file":
        return place
    settings = location.partition("?")
    authority = settings[0].partition("/")[0]
    prefix = inner.removesuffix(settings[0].partition("/")[2])
    return f"{scheme}://{authority}/{place.removeprefix(prefix)}{settings[1]}{settings[2]}"
