"""The encoding of a file of text."""

from pipelines.errors import SourceError

HEAD_BYTES = 2**18
"""Text in which bytes of zero are counted."""
MOST_LINES_WITH_ZERO = 0.1
"""Share of lines with a byte of zero beyond which a file is no text. ETL refuses the records of fewer."""


def find_encoding(data: bytes, path: str) -> str:
    """The encoding of a text. Raises SourceError for bytes that are no text, or that are text in two encodings."""
    if data.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        raise SourceError(f"{path} is UTF-32, which is not read; save it as UTF-8")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    lines = data[:HEAD_BYTES].split(b"\n")
    if sum(b"\0" in line for line in lines) > MOST_LINES_WITH_ZERO * len(lines):
        raise SourceError(f"{path} has bytes of zero, so it is no text of UTF-8; save text as UTF-8, and give an archive its ending")
    try:
        data.decode()
        return "utf-8"
    except UnicodeDecodeError:
        lines = [line for line in data.split(b"\n") if not line.isascii()]
    wrong = [line for line in lines if not _is_utf8(line)]
    if len(wrong) < len(lines) / 2:
        number = data[: data.find(wrong[0])].count(b"\n") + 1
        raise SourceError(
            f"{path} mixes encodings: most lines are UTF-8, and line {number:,} of those read is not; save it as UTF-8 throughout"
        )
    return "windows-1252" if any(0x80 <= byte < 0xA0 for line in wrong for byte in line) else "iso-8859-1"


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
