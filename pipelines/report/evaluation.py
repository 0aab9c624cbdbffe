"""Files of an evaluation: `evaluation/<split>/summary.json`, and a Parquet file for each table.

In the directory of a run, a split is one archive of these files, so that it is replaced whole.
"""

import io
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.data.versions.raw_inputs import read_raw_rows
from pipelines.data.versions.versions import Version
from pipelines.errors import DatasetError

log = logging.getLogger(__name__)

FOLDER = "evaluation"
WORST, WORST_ROWS = "worst", "worst_rows"
"""The tables of the most wrong rows: encoded features with the prediction, and the query's rows, in the same order."""
CONTRIBUTIONS = "contributions"
"""The table of the features that moved the output for the most wrong rows."""
SUMMARY = "summary.json"
_ORDER = ("test", "validation")


@dataclass(frozen=True)
class SplitEvaluation:
    """An evaluation of one split."""

    name: str
    summary: Mapping[str, Any]
    """`kind` is that of the details, such as binary, classes or quantity; `metrics` are by name, `rows` is the number of rows."""
    tables: Mapping[str, Mapping[str, Sequence[Any]]]
    """Columns of values, by table."""

    @property
    def kind(self) -> str:
        return str(self.summary.get("kind", ""))


def archive_name(split: str) -> str:
    """Name of a split's archive in the directory of a run."""
    return f"{FOLDER}-{split}.zip"


def pack(summary: Mapping[str, Any], tables: Mapping[str, Mapping[str, Sequence[Any]]]) -> bytes:
    """Archive of a split; equal values give equal bytes."""
    files = {SUMMARY: json.dumps(summary, indent=1).encode()}
    for name, table in tables.items():
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({column: pa.array(values) for column, values in table.items()}), sink)
        files[f"{name}.parquet"] = sink.getvalue().to_pybytes()
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(ZipInfo(name), content)  # dated 1980
    return buffer.getvalue()


def unpack(content: bytes, folder: Path) -> None:
    """Write the files of an archive into a folder. Raises OSError if it is damaged."""
    try:
        with ZipFile(io.BytesIO(content)) as archive:
            archive.extractall(folder)
    except BadZipFile as error:
        raise OSError(f"an archive of {FOLDER} is damaged: {error}") from error


def read_splits(folder: Path) -> list[SplitEvaluation]:
    """The splits in a folder `evaluation`, the test first; those without a readable summary are left out."""
    splits = []
    for path in folder.glob("*"):
        with suppress(OSError, ValueError, pa.ArrowException):
            summary = json.loads((path / SUMMARY).read_bytes())
            tables = {file.stem: pq.read_table(file).to_pydict() for file in sorted(path.glob("*.parquet"))}
            splits.append(SplitEvaluation(path.name, summary, tables))
    return sorted(splits, key=lambda split: (*_ORDER, split.name).index(split.name))


def add_raw_rows(folder: Path, version: Version) -> None:
    """Write the most wrong rows of each split in a folder `evaluation` as they are in the query, from the version.
    Splits that have them, or whose rows were not kept, or cannot be read from here, stay as they are."""
    for split in folder.glob("*"):
        file = split / f"{WORST_ROWS}.parquet"
        try:
            if file.exists() or not (numbers := pq.read_table(split / f"{WORST}.parquet", columns=["row"])["row"].to_pylist()):
                continue
            if (rows := read_raw_rows(version.filesystem, version.root, version.parts(split.name), numbers)) is not None:
                pq.write_table(rows, file)
        except (OSError, KeyError, pa.ArrowException, DatasetError) as error:
            log.info("the most wrong rows of %s are shown as they were encoded: %s", split.name, error)
