"""What one attempt at a version leaves: files of Spark's tasks, and the reports by which the driver knows them.

A task that is retried leaves a file that no report names; it does not exist for readers, and the commit removes it.
"""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from types import TracebackType
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from pipelines.dataset import storage
from pipelines.dataset.parts import RowGroup

REPORT_SCHEMA = "report string"
QUARANTINE = pa.schema([("reason", pa.string()), ("record", pa.string()), ("source", pa.string())])


@dataclass(frozen=True)
class Attempt:
    """Where an attempt writes. It pickles, so tasks get it as it is."""

    filesystem: FileSystem
    root: str
    """Folder of the version."""
    name: str

    def new_file(self, folder: str, prefix: str) -> str:
        """A path that no other task has, relative to the version, in a folder that is there."""
        storage.make_folder(self.filesystem, f"{self.root}/{folder}")
        return f"{folder}/{prefix}-{uuid4().hex[:12]}.parquet"


@dataclass
class Report:
    """What one task wrote, or all of them together."""

    row_groups: list[RowGroup] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    """Rows by reason."""
    samples: dict[str, str] = field(default_factory=dict)
    """By reason, the least record."""
    quarantine: list[str] = field(default_factory=list)
    """Files of refused rows, relative to the version."""

    def refuse(self, reason: str, record: str, rows: int = 1) -> None:
        self.refused[reason] += rows
        self.samples[reason] = min(record, self.samples.get(reason, record))

    def add(self, other: "Report") -> None:
        self.row_groups += other.row_groups
        self.quarantine += other.quarantine
        for reason, rows in other.refused.items():
            self.refuse(reason, other.samples[reason], rows)

    def to_batch(self) -> pa.RecordBatch:
        """The report as the one row that a task returns, of REPORT_SCHEMA."""
        values = vars(self) | {"row_groups": [asdict(group) for group in self.row_groups]}
        return pa.RecordBatch.from_pydict({"report": [json.dumps(values)]})


def together(texts: list[str]) -> Report:
    """The collected rows of REPORT_SCHEMA as one report."""
    whole = Report()
    for text in texts:
        values = json.loads(text)
        groups = [RowGroup(**group) for group in values["row_groups"]]
        whole.add(Report(groups, Counter(values["refused"]), values["samples"], values["quarantine"]))
    return whole


class Quarantine:
    """A task's file of refused rows: made when there is a first one, and named in the report."""

    def __init__(self, attempt: Attempt, report: Report) -> None:
        self._attempt, self._report = attempt, report
        self._writer: pq.ParquetWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep rows of the schema QUARANTINE. Raises DatasetError if they cannot be written."""
        folder = f"quarantine-{self._attempt.name}"
        with storage.naming(f"{self._attempt.root}/{folder}"):
            if self._writer is None:
                file = self._attempt.new_file(folder, "part")
                self._writer = pq.ParquetWriter(f"{self._attempt.root}/{file}", QUARANTINE, filesystem=self._attempt.filesystem)
                self._report.quarantine.append(file)
            self._writer.write_batch(batch)

    def __enter__(self) -> "Quarantine":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._writer is not None:
            with storage.naming(f"{self._attempt.root}/quarantine-{self._attempt.name}"):
                self._writer.close()
