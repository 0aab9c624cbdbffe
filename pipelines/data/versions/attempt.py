"""An attempt at a version: files that Spark's tasks write, and reports that tell the driver about them.

A retried task leaves a file that no report names; readers ignore it, and the commit removes it.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from uuid import uuid4

import pyarrow as pa
from pyarrow.fs import FileSystem

from pipelines.data.versions import storage
from pipelines.data.versions.parts import RowGroup

REPORT_SCHEMA = "report string"


@dataclass(frozen=True)
class Attempt:
    """The folder and the name of an attempt. Tasks receive it by pickle."""

    filesystem: FileSystem
    root: str
    """Folder of the version."""
    name: str

    def new_file(self, folder: str, prefix: str) -> str:
        """A unique path relative to the version, in a folder that exists."""
        storage.make_folder(self.filesystem, f"{self.root}/{folder}")
        return f"{folder}/{prefix}-{uuid4().hex[:12]}.parquet"


@dataclass
class Report:
    """The rows and files that one task wrote, or all tasks."""

    row_groups: list[RowGroup] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    """Rows by reason."""
    samples: dict[str, str] = field(default_factory=dict)
    """By reason, the record that sorts first."""
    quarantine: Counter[str] = field(default_factory=Counter)
    """Refused rows by file, relative to the version."""
    raw_rows: list[str] = field(default_factory=list)
    """Files of raw rows, relative to the version."""
    accepted: int = 0
    """Rows that every encoder took."""
    expected_rows: int = 0
    """Rows expected in the parts: the same number, or the number of windows that documents are cut into."""

    class_counts: dict[str, list[int]] = field(default_factory=dict)
    """By column, how often each class stands in the encoded values of the training split."""

    def count_classes(self, column: str, counts: Sequence[int]) -> None:
        earlier = self.class_counts.get(column, [0] * len(counts))
        self.class_counts[column] = [count + more for count, more in zip(earlier, counts, strict=True)]

    def refuse(self, reason: str, record: str, rows: int = 1) -> None:
        self.refused[reason] += rows
        self.samples[reason] = min(record, self.samples.get(reason, record))

    def add(self, other: "Report") -> None:
        self.row_groups += other.row_groups
        self.quarantine += other.quarantine
        self.raw_rows += other.raw_rows
        self.accepted += other.accepted
        self.expected_rows += other.expected_rows
        for column, class_counts in other.class_counts.items():
            self.count_classes(column, class_counts)
        for reason, rows in other.refused.items():
            self.refuse(reason, other.samples[reason], rows)

    def to_batch(self) -> pa.RecordBatch:
        """The report as the one row that a task returns, of REPORT_SCHEMA."""
        values = vars(self) | {"row_groups": [asdict(group) for group in self.row_groups]}
        return pa.RecordBatch.from_pydict({"report": [json.dumps(values)]})


def merge_reports(texts: list[str]) -> Report:
    """Merge the collected rows of REPORT_SCHEMA into one report."""
    report = Report()
    for text in texts:
        values = json.loads(text)
        groups = [RowGroup(**group) for group in values["row_groups"]]
        counts = {name: Counter(values[name]) for name in ("refused", "quarantine")}
        report.add(Report(**{**values, **counts, "row_groups": groups}))
    return report
