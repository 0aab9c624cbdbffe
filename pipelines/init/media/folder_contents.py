"""The files of a path by kind, of which names and sizes are read only; and files of one kind as a table of bytes.

What slices read is told by their modules `draft`: tables by the endings in `TABLE_KINDS`, archives by those in `ARCHIVE_READERS`,
recordings and the like by those in `MEDIA_ENDINGS`; and what no encoder of theirs reads, by `UNREADABLE`.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipelines.config.messages.words import name_list, show_count
from pipelines.config.slices import slice_modules
from pipelines.errors import ConfigError

Item = TypeVar("Item")

IMAGES = (".png", ".jpg", ".jpeg")
DOCUMENTS = (".txt", ".text", ".md", ".rst")
_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".pq", ".orc", ".avro", ".xls")
_UNREADABLE = {
    **dict.fromkeys((".gif", ".bmp", ".tif", ".tiff", ".webp", ".heic"), "the encoder image reads PNG and JPEG; convert the images to PNG"),
    **dict.fromkeys((".zip", ".7z", ".rar", ".tgz"), "the archives that can be read are .tar and .tar.gz; unpack it, and name its folder"),
}
"""What to do with files that are no table and that nothing reads, by their endings."""
_COMPRESSED = (".gz", ".bz2", ".zst")
_ABOUT = ("readme", "license", "licence", "citation", "changelog", "attribution", "thumbs.db")
"""Beginnings of the names of files about the data, in lower case."""
MOST_FILES = 300
"""The most files that are opened."""


@dataclass(frozen=True)
class FoundFile:
    """A file below the path, or the path itself."""

    name: str
    """Path below the folder, with `/` between folders."""
    bytes: int

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(self.name.split("/")[:-1])

    @property
    def folder(self) -> str:
        """Path of its folder below the path; empty for none."""
        return self.name.rpartition("/")[0]

    @property
    def stem(self) -> str:
        """The name of the file without folders and without the last ending."""
        return self.name.rpartition("/")[2].rpartition(".")[0]

    @property
    def ending(self) -> str:
        """In lower case, of a compressed file both, as `.tar.gz`; empty for none."""
        start, ending = os.path.splitext(self.name.rpartition("/")[2].lower())
        if ending in _COMPRESSED and (inner := os.path.splitext(start)[1]):
            return f"{inner}{ending}"
        return ending


@dataclass(frozen=True)
class FolderContents:
    """The files of a path, sorted by name, without hidden ones and those about the data."""

    path: str
    root: str
    """The folder that the names of files start from: the path, or the folder of the only file."""
    files: tuple[FoundFile, ...]
    about: tuple[str, ...] = ()
    """Names of files that describe the data."""

    @property
    def is_file(self) -> bool:
        return Path(self.path).is_file()

    def place(self, file: FoundFile) -> str:
        """The path of a file."""
        return str(Path(self.root) / file.name)

    def select_endings(self, endings: Collection[str]) -> tuple[FoundFile, ...]:
        return tuple(file for file in self.files if file.ending in endings)


@dataclass(frozen=True)
class SampledFiles:
    """A table with `path` and `content`, and a sample of its files."""

    settings: Mapping[str, Any]
    """The table in the config."""
    files: tuple[FoundFile, ...]
    sample: tuple[FoundFile, ...]
    read: Callable[[FoundFile], bytes]
    """The content of a file of the sample."""
    condition: str = ""
    """SQL for the rows that are of this kind; empty if all are."""
    assumptions: tuple[str, ...] = ()


def is_file_type(ending: str) -> bool:
    """Whether an ending names a kind of file, and not a number or a checksum, as the names of mails and posts have them."""
    return bool(re.fullmatch(r"(\.[a-z][a-z0-9]{0,6})+", ending))


def table_endings() -> set[str]:
    """The endings of files that are tables."""
    return {*_TABLES, *(ending for kinds in _slice_values("TABLE_KINDS", ()) for kind in kinds for ending in kind.endings)}


def endings_besides_text() -> set[str]:
    """The endings of files that are surely no text to be read: those of media, tables, archives, and what nothing reads."""
    media = (ending for endings in _slice_values("MEDIA_ENDINGS", ()) for ending in endings)
    return {*IMAGES, *media, *table_endings(), *_archive_readers(), *_unreadable()}


def _unreadable() -> dict[str, str]:
    return {ending: remedy for remedies in (_UNREADABLE, *_slice_values("UNREADABLE", {})) for ending, remedy in remedies.items()}


def _archive_readers() -> dict[str, Callable[[str, Sequence[str]], SampledFiles | None]]:
    return {ending: read for readers in reversed(_slice_values("ARCHIVE_READERS", {})) for ending, read in readers.items()}


def _slice_values(name: str, default: Any) -> list[Any]:
    """The values of a name in slices' modules `draft`."""
    return [getattr(module, name, default) for module in slice_modules("draft").values()]


def refuse_equal_names(path: str, files: Iterable[tuple[str, FoundFile]]) -> None:
    """Raise ConfigError if two files, each after its name without the ending, have equal names: ETL would refuse the rows of both."""
    by_name = defaultdict[str, list[FoundFile]](list)
    for name, file in files:
        by_name[name].append(file)
    if repeats := [files for files in by_name.values() if len(files) > 1]:
        first, second, *_ = repeats[0]
        raise ConfigError(
            f"{path}: several files have one name but for their endings, such as {first.name} and {second.name}; keep one file of each "
            f"name ({len(repeats):,} have more)"
        )


def list_contents(path: str) -> FolderContents:
    """List the files of a path. Raises ConfigError if there are none, or a name is not UTF-8 or has a control character."""
    if any(character in path for character in "*?[]{}\\"):
        raise ConfigError(f"{path}: its name has one of * ? [ ] {{ }} \\, which a config takes for a pattern; rename it")
    if Path(path).is_file():
        files, root, about = [FoundFile(Path(path).name, Path(path).stat().st_size)], str(Path(path).parent), []
    else:
        every, root = sorted(_files(path), key=lambda file: file.name), path
        about = [file.name for file in every if file.name.rpartition("/")[2].lower().startswith(_ABOUT)]
        names_about = set(about)
        files = [file for file in every if file.name not in names_about] or every
    if not files:
        raise ConfigError(f"{path}: no file in this folder; name a folder that has files, none of them hidden by a name with . or _")
    for file in files:
        if not file.name.isprintable() or ":" in file.name:
            name = os.fsencode(file.name)
            raise ConfigError(f"{path}: {name!r} is not UTF-8, or has a control character or a colon; rename this file or its folder")
    return FolderContents(path, root, tuple(files), tuple(about))


def check_kinds(contents: FolderContents, kind: str, endings: Collection[str]) -> tuple[FoundFile, ...]:
    """The files with one of the endings. Raises ConfigError if there are files of another kind beside them."""
    files = contents.select_endings(endings)
    if strangers := [file for file in contents.files if file.ending not in endings]:
        counts = Counter(file.ending or "no ending" for file in strangers)
        texts = [f"{count:,} of {ending}" for ending, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]]
        raise ConfigError(
            f"{contents.path}: two kinds of files, {len(files):,} {kind} and {name_list(texts)}, such as {strangers[0].name}; "
            "name a folder that has files of a single kind"
        )
    return files


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many of the items, evenly spaced, the first one included."""
    return list(items) if len(items) <= most else [items[place * len(items) // most] for place in range(most)]


def _files(path: str, below: str = "") -> Iterator[FoundFile]:
    """Files at any depth, but for hidden ones, as `.` and `_` begin in Spark, and links to no file or to a folder above them."""
    folder = os.path.join(path, below) if below else path
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{below}/{entry.name}" if below else entry.name
            if entry.name.startswith((".", "_")) or (entry.is_symlink() and not os.path.exists(entry.path)):
                continue
            if entry.is_dir():
                if not (entry.is_symlink() and Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(entry.path))):
                    yield from _files(path, name)
            elif entry.is_file():
                yield FoundFile(name, entry.stat().st_size)


def find_file_table(contents: FolderContents, kind: str, endings: Sequence[str]) -> SampledFiles | None:
    """The table of the files with these endings. None if few files have one. Raises ConfigError if there are others beside them, or most
    files are of a format that no encoder reads."""
    ending, count = Counter(file.ending for file in contents.files).most_common(1)[0]
    if (remedy := _unreadable().get(ending)) and count > len(contents.files) / 2:
        raise ConfigError(f"{contents.path}: {show_count(count, 'file')} of {ending}, but {remedy}")
    if len(contents.files) == 1 and (read := _archive_readers().get(ending)):
        return read(contents.place(contents.files[0]), endings)
    files = contents.select_endings(endings)
    if contents.is_file or 4 * len(files) < len(contents.files):
        return None
    check_kinds(contents, kind, endings)
    if blank := [file for file in files if not file.bytes]:
        raise ConfigError(
            f"{contents.path}: {len(blank):,} of {len(files):,} {kind} are files without a byte, first {blank[0].name}; remove them"
        )
    options = {"recursiveFileLookup": True, "pathGlobFilter": name_pattern(files)}
    settings = {"format": "binaryFile", "path": contents.path, "options": options}
    return SampledFiles(settings, files, tuple(spread(files, MOST_FILES)), lambda file: Path(contents.place(file)).read_bytes())


def folder_table(contents: FolderContents, folder: str, files: Sequence[FoundFile], most: int = MOST_FILES) -> SampledFiles:
    """The table of files that lie in one folder below the path. Raises ConfigError if two have equal names but for their endings."""
    refuse_equal_names(contents.path, ((file.stem, file) for file in files))
    settings = {"format": "binaryFile", "path": f"{contents.path}/{folder}", "options": {"pathGlobFilter": name_pattern(files)}}
    return SampledFiles(settings, tuple(files), tuple(spread(files, most)), lambda file: Path(contents.place(file)).read_bytes())


def name_pattern(files: Sequence[FoundFile]) -> str:
    """A pattern for the endings of the files, as they are written."""
    endings = sorted({Path(file.name).suffix.removeprefix(".") for file in files})
    return f"*.{endings[0]}" if len(endings) == 1 else f"*.{{{','.join(endings)}}}"
