"""Files of one kind as a table of bytes: those of a folder, or those inside one archive."""

import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.data.sources.files.content import content
from pipelines.errors import ConfigError
from pipelines.init.media.contents import ARCHIVES, FolderContents, FoundFile, check_kinds, refuse_equal_names, refuse_unreadable, spread

MOST_FILES = 300
"""The most files that are opened."""
MOST_MEMBERS, MOST_BYTES = 100_000, 2**30
"""The most files of an archive that are listed, and the most of its bytes, unpacked, that are read for that."""


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


def find_file_table(contents: FolderContents, kind: str, endings: Sequence[str]) -> SampledFiles | None:
    """The table of the files with these endings. None if few files have one. Raises ConfigError if there are others beside them."""
    refuse_unreadable(contents)
    if len(contents.files) == 1 and contents.files[0].ending in ARCHIVES:
        return _archive_table(contents.place(contents.files[0]), endings)
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


def _archive_table(path: str, endings: Sequence[str]) -> SampledFiles | None:
    """The table of a tar archive. It is read from its beginning, so of a long one only the first files are listed."""
    files: list[FoundFile] = []
    samples: dict[FoundFile, bytes] = {}
    step, strangers, size, is_whole = 1, 0, 0, True
    try:
        with content(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if len(files) >= MOST_MEMBERS or size > MOST_BYTES:
                    is_whole = False
                    break
                size += member.size
                file = FoundFile(member.name, member.size)
                if not member.isreg() or file.ending not in endings:
                    strangers += member.isreg()
                    continue
                if len(files) % step == 0 and (opened := archive.extractfile(member)):
                    samples[file] = opened.read()
                files.append(file)
                if len(samples) > MOST_FILES:
                    samples, step = dict(list(samples.items())[::2]), 2 * step
    except (tarfile.TarError, EOFError) as error:
        raise ConfigError(f"{path} is not a whole tar archive, says Python: {error}; get this file again") from error
    if not files or strangers > len(files):
        return None
    condition = " OR ".join(f"path LIKE '%{ending}'" for ending in sorted({Path(file.name).suffix for file in files})) if strangers else ""
    notes = () if is_whole else (f"the classes are those of the first {len(files):,} files of the archive; there may be more",)
    return SampledFiles(
        {"format": "tar", "path": path},
        tuple(sorted(files, key=lambda file: file.name)),
        tuple(samples),
        samples.__getitem__,
        condition,
        notes,
    )
