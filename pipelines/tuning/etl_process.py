"""A process that makes one dataset version while Ray trains: Spark and its Java end with it, and its memory is free again.

This module loads nothing that takes time before Java starts.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pipelines

if TYPE_CHECKING:
    from pipelines.data.versions.manifest import Manifest

_END_SECONDS = 30.0
"""For an ETL that is asked to end, which removes what it has written."""
_SHOWN = 2_000
"""Characters of the output of an ETL that died, in its error."""


class EtlAnswer(NamedTuple):
    """The outcome of an ETL."""

    error: str = ""
    """Why there is no version; empty if there is one."""
    kind: str = ""
    """The class of that error; empty if the process died."""
    warnings: Sequence[str] = ()
    """Texts that it has logged."""

    @property
    def is_of_trial(self) -> bool:
        """Whether the error follows from the config and the rows, so that each further ETL would end with it. Any other may be of this
        moment: a store or MLflow that is away, a lock, a full disk, or too little memory."""
        return self.kind in ("ConfigError", "SourceError", "QualityError")


class EtlProcess:
    """An ETL in another process. A kill of this one leaves it: it commits its version, which the next search finds, not as the newest."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config` are the plain values of a config with absolute paths."""
        # Files, since nobody reads a pipe meanwhile.
        self._answer, self._output = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        command = [sys.executable, "-P", "-c", "from pipelines.tuning.etl_process import main; main()"]
        own_jvm = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
        environment = {name: value for name, value in os.environ.items() if name not in own_jvm}
        package_folder = str(Path(pipelines.__file__).parents[1])
        environment["PYTHONPATH"] = os.pathsep.join([package_folder, *filter(None, [environment.get("PYTHONPATH")])])
        # In a session of its own, a signal of the terminal does not end Java before its Python.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._answer, stderr=self._output, env=environment, start_new_session=True
        )
        assert self._process.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError), self._process.stdin as pipe:  # it has ended, as `error` says
            pipe.write(json.dumps(config).encode())

    def answer(self) -> EtlAnswer | None:
        """The outcome; None while it goes on."""
        if self._process.poll() is None:
            return None
        self._answer.seek(0)
        with suppress(ValueError, TypeError, IndexError):
            return EtlAnswer(**json.loads(self._answer.read().splitlines()[-1]))
        self._output.seek(0)
        last_lines = self._output.read().decode(errors="replace").strip()[-_SHOWN:]
        return EtlAnswer(f"its process ended with exit code {self._process.returncode}, and last wrote: {last_lines or 'nothing'}")

    def end(self) -> None:
        """Have an ETL that goes on remove what it has written, and end."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._answer.close()
        self._output.close()


def main() -> None:
    """The process's own work: make the version of the config on standard input, and print an `EtlAnswer` as JSON."""
    from pipelines.errors import LockstepError  # noqa: PLC0415, only this process needs it, as all of these
    from pipelines.runtime.interrupts import exit_on_signals  # noqa: PLC0415

    sys.path.append(os.getcwd())  # for encoders of one's own
    warnings = _Warnings()
    logging.getLogger("pipelines").addHandler(warnings)
    with exit_on_signals():
        error, kind = "", ""
        try:
            make_version(json.load(sys.stdin))
        except LockstepError as failure:
            error, kind = str(failure), type(failure).__name__
        print(json.dumps(EtlAnswer(error, kind, warnings.texts)._asdict()), flush=True)


class _Warnings(logging.Handler):
    """Keeps the texts of warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def make_version(values: Mapping[str, Any]) -> None:
    """Make the dataset version of a config, with its page, as `api.prepare` does. Raises what that does."""
    from pipelines.etl import WORKER_MODULES  # noqa: PLC0415
    from pipelines.spark.early_start import started_early  # noqa: PLC0415

    with started_early(str(values["name"]), *WORKER_MODULES):
        from pipelines.config import parse  # noqa: PLC0415, while Spark starts
        from pipelines.etl.run import run  # noqa: PLC0415
        from pipelines.launch.checks import check_before_etl  # noqa: PLC0415
        from pipelines.report.data_profile import profile_files  # noqa: PLC0415

        config = parse(dict(values), str(values["name"]), recorded=True)
        check_before_etl(config)
        make_aside(config.dataset.path, lambda: run(config, profile_files))


def make_aside(path: str, make: Callable[[], "Manifest"]) -> None:
    """Make a version that does not become the newest of the dataset's folder, which other jobs compare with: the one before stays it."""
    from pipelines.data.versions import storage  # noqa: PLC0415, while Spark starts, as the others
    from pipelines.data.versions.erasures import dataset_lock  # noqa: PLC0415
    from pipelines.data.versions.versions import confirm, versions  # noqa: PLC0415

    with dataset_lock(path):
        newest = versions(path)[:1]
        version = make()
        # Another job may have made or confirmed a version meanwhile, which stays the newest too.
        if newest and newest[0][1].digest != version.digest == versions(path)[0][1].digest:
            confirm(storage.locate(path)[0], newest[0][0])
