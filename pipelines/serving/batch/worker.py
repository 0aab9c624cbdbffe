"""Runs in Spark's tasks: predicts the rows of each, and writes them to files of the attempt."""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import mkdtemp

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import SparkFiles, TaskContext

from pipelines.data.features import refusal_kind
from pipelines.data.versions import storage
from pipelines.data.versions.commit import Attempt, Report
from pipelines.etl.quarantine import Quarantine
from pipelines.etl.refusals import REASON
from pipelines.serving.model.column_casts import drop_value
from pipelines.serving.model.predictor import REFUSED
from pipelines.serving.model.process import ModelProcess, Takes

WRITTEN = "file string, rows long, report string"
"""The one row that a task returns: its file, empty if there is none, with its rows, and its report."""

_WRITTEN_BYTES = 16 * 2**20
"""Predictions that are written together, where a model computes only few rows at once."""


@dataclass(frozen=True)
class Job:
    """The parameters of the tasks."""

    attempt: Attempt
    archive: str
    """Name of the model's archive among the files that Spark has given to every machine."""
    takes: Takes
    keep: tuple[str, ...]
    """Columns of the rows that are written beside the predictions."""


_models: dict[tuple[str, str, str], ModelProcess] = {}
"""The models of this Python worker, which Spark uses for one task after another."""


def predict_rows(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write every row with its prediction, or with the reason for refusing it to the quarantine."""
    report = Report()
    with Quarantine(job.attempt, report) as quarantine, _Part(job.attempt) as part:
        for batch in batches:
            rows = quarantine.set_aside(batch, batch.column(REASON)).drop_columns([REASON])
            if not len(rows):
                continue
            pieces: list[pa.RecordBatch] = []
            model = _load_model(job)
            count = model.rows_at_once or len(rows)
            for start in range(0, len(rows), count):
                piece = rows.slice(start, count)
                predicted = model.predict(piece)
                reasons = predicted.column(REFUSED)
                accepted = quarantine.set_aside(piece, reasons, lambda reason: refusal_kind(drop_value(reason))).select(job.keep)
                report.accepted += len(accepted)
                predicted = predicted.drop_columns([REFUSED]).filter(pc.is_null(reasons))
                columns, names = [*accepted.columns, *predicted.columns], [*accepted.schema.names, *predicted.schema.names]
                pieces.append(pa.RecordBatch.from_arrays(columns, names))
                if start + count >= len(rows) or sum(piece.nbytes for piece in pieces) > _WRITTEN_BYTES:
                    part.write(pa.concat_batches(pieces) if len(pieces) > 1 else pieces[0])
                    pieces = []
    yield pa.RecordBatch.from_pydict({"file": [part.file], "rows": [part.rows], "report": report.to_batch().column("report")})


def _load_model(job: Job) -> ModelProcess:
    """The model, which the first task of a Python worker loads and verifies. On a GPU of Spark's, if the task has one."""
    context = TaskContext.get()
    gpus = context.resources().get("gpu") if context else None
    devices = ",".join(gpus.addresses) if gpus else ""
    key = (job.archive, job.takes, devices)
    if key not in _models:
        folder = mkdtemp(prefix="model-", dir=SparkFiles.getRootDirectory())  # which Spark removes with the application
        with tarfile.open(SparkFiles.get(job.archive)) as archive:
            archive.extractall(folder, filter="data")
        _models[key] = ModelProcess(f"{folder}/model", job.takes, {"CUDA_VISIBLE_DEVICES": devices} if devices else None)
    return _models[key]


class _Part:
    """A task's file of predictions, created with the first rows."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._writer: pq.ParquetWriter | None = None
        self.file, self.rows = "", 0

    def write(self, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        folder = f"data-{self._attempt.name}"
        with storage.store_errors(f"{self._attempt.root}/{folder}"):
            if self._writer is None:
                self.file = self._attempt.new_file(folder, "part")
                self._writer = pq.ParquetWriter(
                    f"{self._attempt.root}/{self.file}", batch.schema, filesystem=self._attempt.filesystem, write_page_checksum=True
                )
            self._writer.write_batch(batch)
        self.rows += len(batch)

    def __enter__(self) -> "_Part":
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            with storage.store_errors(f"{self._attempt.root}/{self.file}"):
                self._writer.close()
