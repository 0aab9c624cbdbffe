"""Runs a logged model in a process of its own, with the code that was logged with it.

So models of other versions of this project predict as well, and several models at once.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from pipelines import errors
from pipelines.errors import CorruptError, LockstepError, SourceError
from pipelines.serving.model.column_casts import fitting_rows, insert_refused_rows, misfits, schema_of_values

Takes = Literal["rows", "query"]
"""`rows` of the kind that the model's signature shows, or the columns of its `query`."""


class ModelProcess:
    """A model that is loaded and verified, until `close`. It ends with the process that started it."""

    def __init__(self, folder: str | Path, takes: Takes = "rows", variables: Mapping[str, str] | None = None) -> None:
        """Load the model in `folder`; `variables` are added to the environment. Raises CorruptError if a file of the model was altered, and
        the LockstepError that loading it raises."""
        self._log = TemporaryFile()  # noqa: SIM115, `close` closes it
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("alone.py")), str(folder), takes],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **(variables or {})},
        )
        assert self._process.stdin and self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._reader: pa.RecordBatchStreamReader | None = None
        try:
            try:
                self.about: dict[str, Any] = dict(json.loads(self._stdout.readline()))
            except ValueError as error:
                raise self._exit_error() from error
            if kind := self.about.get("error"):
                error_class, message = getattr(errors, kind, None), self.about["message"]
                raise (error_class or CorruptError)(message if error_class else f"the model cannot be loaded: {kind}: {message}")
        except BaseException:
            self.close()
            raise
        self.rows_at_once: int | None = self.about.get("rows_at_once")
        """Rows of a batch beyond which predictions take much memory; None if there is no such number."""
        self.inputs, self.outputs = (pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(self.about[name]))) for name in ("inputs", "outputs"))

    def predict(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Predictions and `refused`, one row per row. `rows` have the columns `inputs`, or numbers of other types, which are cast; a row
        with a number that the model's type does not have is refused. Raises SourceError if a column is missing or has another type."""
        if faults := misfits(self.inputs, schema_of_values(rows)):
            raise SourceError(f"the rows have {faults[0]}, which the model takes")
        table, unfit = fitting_rows(rows, self.inputs)
        columns = pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in table.filter(pc.is_null(unfit)).columns], schema=self.inputs
        )
        try:
            if self._writer is None:
                self._writer = pa.ipc.new_stream(self._stdin, self.inputs)
            self._writer.write_batch(columns)
            self._stdin.flush()
            if self._reader is None:
                self._reader = pa.ipc.open_stream(self._stdout)
            predicted = self._reader.read_next_batch()
        except (OSError, ValueError, StopIteration, pa.ArrowException) as error:
            raise self._exit_error() from error
        return insert_refused_rows(predicted, unfit, self.outputs.names[-1])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        with suppress(OSError):  # bytes that it has not read
            self._stdin.close()
        self._stdout.close()
        self._log.close()

    def __enter__(self) -> "ModelProcess":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _exit_error(self) -> LockstepError:
        """The error of a process that ended on its own."""
        self._process.kill()
        code = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return errors.DatasetError(f"the process of the model ended with {code}: {lines[-1] if lines else 'it printed nothing'}; run again")
