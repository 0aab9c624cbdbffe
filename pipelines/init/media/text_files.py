"""Beginnings of text files: their encoding, and their lines."""

import codecs
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.data.sources.files.content import content
from pipelines.errors import ConfigError
from pipelines.init.media.class_folders import split_in_name
from pipelines.init.media.folder_contents import FolderContents, FoundFile, is_file_type

MOST_BYTES = 32 * 2**20
"""The most bytes of a file that are read."""
_BINARY_SHARE = 0.01
"""Share of control characters beyond which bytes are no text."""


@dataclass(frozen=True)
class Beginning:
    """The first bytes of a text file, decoded."""

    text: str
    encoding: str
    """Empty for UTF-8."""
    is_whole: bool
    bytes: int
    """Of the file, uncompressed: about, if it is not whole."""

    @property
    def lines(self) -> list[str]:
        """Whole lines, as Spark cuts them."""
        lines = [line.removesuffix("\r") for line in self.text.split("\n")]
        return lines if self.is_whole and lines[-1] else lines[:-1]


def read_beginning(path: str, file_bytes: int, most_bytes: int = MOST_BYTES) -> Beginning | None:
    """The beginning of a file. None if it is no text."""
    with content(path) as stream:
        pieces, size = [], 0
        while size < most_bytes and (piece := stream.read(min(2**20, most_bytes - size))):
            pieces.append(piece)
            size += len(piece)
        is_whole = not stream.read(1)
    data = b"".join(pieces)
    encoding = detect_encoding(data, is_whole)
    if encoding is None:
        return None
    decoded = codecs.getincrementaldecoder(encoding or "utf-8")("replace").decode(data, is_whole)
    return Beginning(decoded, encoding, is_whole, size if is_whole else max(size, file_bytes))


def detect_encoding(data: bytes, is_whole: bool) -> str | None:
    """The name of the encoding for the option of a table: empty for UTF-8, None for bytes that are no text."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    control = sum(data.count(bytes([value])) for value in range(32) if value not in b"\t\n\r\f\x1b")
    if control > _BINARY_SHARE * len(data) or b"\0" in data:
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, is_whole)
    except UnicodeDecodeError:
        # Windows-1252 has dashes and quotes where Latin-1 has control characters, and leaves these five undefined.
        is_windows = re.search(rb"[\x80-\x9f]", data) and not re.search(rb"[\x81\x8d\x8f\x90\x9d]", data)
        return "windows-1252" if is_windows else "ISO-8859-1"
    return ""


def check_lines(path: str, beginning: Beginning) -> None:
    """Raise ConfigError for an encoding whose lines ETL cannot tell apart byte by byte."""
    if beginning.encoding == "UTF-16":
        raise ConfigError(f"{path} is UTF-16, in which ETL reads no single lines; save the file as UTF-8")


def group_by_split(files: Sequence[FoundFile]) -> dict[str, dict[str, FoundFile]]:
    """Files by split, for each name that remains without the word of the split: `a.train.txt` and `a.test.txt` are one group."""
    groups: dict[str, dict[str, FoundFile]] = {}
    for file in files:
        stem, split = split_in_name(file.name)
        groups.setdefault(stem, {})[split] = file
    return groups


def choose_group(contents: FolderContents, files: Sequence[FoundFile]) -> dict[str, FoundFile]:
    """The files of one data set by split, in the order train, validation, test; the split is empty for a single file.

    Raises ConfigError if a folder has several data sets."""
    groups = group_by_split(files)
    if len(groups) > 1:
        names = ", ".join(contents.place(next(iter(group.values()))) for _, group in sorted(groups.items())[:4])
        raise ConfigError(f"{contents.path}: {len(groups)} data sets in a folder; name a file of one of them: {names}")
    (group,) = groups.values()
    if "train" not in group or len(group) == 1:
        return {"": next(iter(group.values()))}
    return {split: group[split] for split in ("train", "validation", "test") if split in group}


def text_path(contents: FolderContents) -> str:
    """The path of a table of texts: that of the only file, or a glob if the folder also has files about the data. A glob of files without
    an ending names the depth that they lie in."""
    if len(contents.files) == 1:
        return contents.place(contents.files[0])
    endings = sorted({file.ending if is_file_type(file.ending) else "" for file in contents.files})
    depths = {len(file.folders) for file in contents.files}
    if contents.about and endings == [""] and len(depths) == 1:
        return contents.path + "/*" * (depths.pop() + 1)
    if not contents.about or not all(endings):
        return contents.path
    endings = sorted({Path(file.name).suffix for file in contents.files})
    return f"{contents.path}/**/*{endings[0] if len(endings) == 1 else '{' + ','.join(endings) + '}'}"


def is_tabular(lines: Sequence[str]) -> bool:
    """Whether lines look like those of a table: as many separators in each, or numbers only."""
    sample = [line for line in lines[:1_000] if line.strip()]
    if not sample:
        return False
    for separator in (",", ";", "\t", "|"):
        counts = Counter(line.count(separator) for line in sample)
        count, number = counts.most_common(1)[0]
        if count >= (2 if separator == "," else 1) and number > 0.75 * len(sample):
            return True
    numeric = sum(bool(re.fullmatch(r"[-+0-9.eE\s]+", line)) for line in sample)
    return numeric > 0.9 * len(sample)
