"""Recognizes files of binary formats by their first bytes."""

from pipelines.data.sources.files.content import file_errors, open_file

PARQUET = "Parquet"
_BEGINNINGS = {
    b"PAR1": PARQUET, b"PARE": "encrypted Parquet", b"ORC": "ORC", b"Obj\x01": "Avro", b"ARROW1": "Arrow", b"PK\x03\x04": "ZIP or Excel",
    b"SQLite format 3": "SQLite", b"\x89HDF": "HDF5",
}  # fmt: skip
_CONTROLS = {*range(32)} - {*b"\t\n\f\r"}
"""Bytes that no text has."""


def binary_format(path: str) -> str:
    """The binary format of which a file has the first bytes; empty for text. Raises SourceError if it cannot be read."""
    with file_errors(path), open_file(path) as stream:
        beginning = bytes(stream.read(64))
    if not set(beginning) & _CONTROLS:  # a text may begin with ORCID or PAR1
        return ""
    return next((kind for magic, kind in _BEGINNINGS.items() if beginning.startswith(magic)), "")
