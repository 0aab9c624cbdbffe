"""A process that makes dataset versions of drafts: its Spark starts while the data are read, and ends with it.

This module loads nothing that takes time, in either process, so that Java starts at once.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any

import pipelines

MOST_SECONDS = 180.0
"""Of a rehearsal; a busy machine may take a minute."""
_SPARK_ARGUMENTS = "--master local[1] --conf spark.sql.codegen.wholeStage=false --conf spark.ui.enabled=false pyspark-shell"
"""One task at a time needs one Python worker, and generated code would be compiled for a few rows."""
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a Java that ends after seconds: it compiles what it runs once, and has one collector. It takes a sixth less processor time in all."""


@dataclass(frozen=True)
class RehearsalRequest:
    """A config as plain values, and where its sample is read."""

    values: Mapping[str, Any]
    origin: str
    """The file that the config is to be written to, for messages."""
    folder: str
    """A folder for the version, which the caller removes."""
    sampled_paths: Mapping[str, str] = field(default_factory=dict)
    """Paths by table, in place of those of the config."""
    only_analysis: bool = False
    """Whether a table is too large to be read."""


@dataclass(frozen=True)
class RehearsalResult:
    """The outcome of ETL over the sample."""

    rows: int = 0
    """Records parsed; 0 if they were only analysed."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Refused records and rows by reason."""
    samples: Mapping[str, str] = field(default_factory=dict)
    """A record by reason."""
    error: str = ""
    """Why ETL would refuse the draft; empty if it would not."""
    error_class: str = ""
    unavailable: str = ""
    """Why ETL did not run, such as a missing Java; empty if it did."""


class RehearsalProcess:
    """A process that waits for requests. Leaving the context kills it, and removes its folder of temporary files."""

    def __init__(self) -> None:
        self._is_too_slow = False

    def __enter__(self) -> "RehearsalProcess":
        self._temporary = tempfile.TemporaryDirectory(prefix="lockstep-init-")
        self.folder = Path(self._temporary.name)
        self._errors = open(self.folder / "stderr", "w+b")
        command = [sys.executable, "-P", "-c", "from pipelines.rehearsal.process import main; main()"]
        environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_GATEWAY_PORT"}
        package_folder = str(Path(pipelines.__file__).parents[1])
        path = os.pathsep.join([package_folder, *filter(None, [environment.get("PYTHONPATH")])])
        scratch = self.folder / "scratch"  # whoever is killed removes nothing
        scratch.mkdir()
        java_options = f'{environment.get("SPARK_SUBMIT_OPTS") or _JAVA_OPTIONS} -Djava.io.tmpdir="{scratch}"'
        environment |= {"PYTHONPATH": path, "PYSPARK_SUBMIT_ARGS": _SPARK_ARGUMENTS, "SPARK_SUBMIT_OPTS": java_options}
        environment |= {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}
        pipe = subprocess.PIPE
        # In a session of its own, a signal of the terminal reaches only this process, which then kills all of the other's.
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._errors, env=environment, text=True, start_new_session=True
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(OSError):
                if pipe:
                    pipe.close()
        self._temporary.cleanup()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def send(self, request: RehearsalRequest) -> None:
        assert self._process.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError):  # it has ended, as `receive` says
            self._process.stdin.write(json.dumps(asdict(request), default=str) + "\n")
            self._process.stdin.flush()

    def receive(self) -> RehearsalResult:
        """The result, as soon as it is there: the end of Java takes a second more."""
        assert self._process.stdout is not None, "it is a pipe"

        def give_up() -> None:
            self._is_too_slow = True
            self._kill()

        limit = Timer(MOST_SECONDS, give_up)
        limit.start()
        try:
            for line in self._process.stdout:
                if line.startswith("{"):
                    return RehearsalResult(**json.loads(line))
        finally:
            limit.cancel()
        self._process.wait()
        if self._is_too_slow:
            return RehearsalResult(unavailable=f"the trial took more than {MOST_SECONDS:g} seconds")
        self._errors.seek(0)
        last_line = next(iter(self._errors.read().decode(errors="replace").strip().splitlines()[-1:]), "")
        return RehearsalResult(unavailable=f"the trial ended with {self._process.returncode} ({last_line[:300]})")


def main() -> None:
    """The process's own work: start Spark, read requests from standard input, and print their results, each as a line of JSON."""
    logging.disable(logging.WARNING)
    from pipelines.etl import WORKER_MODULES  # noqa: PLC0415
    from pipelines.spark.early_start import started_early  # noqa: PLC0415, only this process loads Spark

    with started_early("lockstep init", *WORKER_MODULES):
        from pipelines.rehearsal.etl_stages import try_config  # noqa: PLC0415, while Spark starts

        for line in sys.stdin:
            print(json.dumps(asdict(try_config(RehearsalRequest(**json.loads(line))))), flush=True)
