"""Lists the files inside a tar archive, for the drafts of pictures and sounds."""

import tarfile
from collections.abc import Sequence
from pathlib import Path

from pipelines.data.sources.files.content import content
from pipelines.errors import ConfigError
from pipelines.init.media.folder_contents import MOST_FILES, FoundFile, SampledFiles

MOST_MEMBERS, MOST_BYTES = 100_000, 2**30
"""The most files of an archive that are listed, and the most of its bytes, unpacked, that are read for that."""


def archive_table(path: str, endings: Sequence[str]) -> SampledFiles | None:
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


ARCHIVE_READERS = dict.fromkeys((".tar", ".tar.gz", ".tar.bz2", ".tar.zst"), archive_table)
"""By the ending of a file."""
