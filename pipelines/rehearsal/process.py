"""A process that tries a draft: its Spark starts while the data are read, and ends with it."""

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any

import pipelines
from pipelines import errors
from pipelines.config import Config, home
from pipelines.config.load import parse, with_absolute_paths
from pipelines.errors import LockstepError, SourceError
from pipelines.etl import WORKER_MODULES
from pipelines.rehearsal.sampled_tables import SampledTables, sample_tables, use_samples

MOST_REASONS = 3
MOST_SECONDS = 180.0
"""Of a trial; a busy machine may take a minute."""
_PARTIAL_SLACK = 3.0
"""How many times the permitted share of refused rows a part of the rows may have: its first lines and its last ones are the worst."""
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


@dataclass(frozen=True)
class _SentDraft:
    """A draft that the process tries, or has tried."""

    values: Mapping[str, Any]
    sampled: SampledTables
    folder: Path
    """Of the dataset version."""

    def is_same_dataset(self, values: Mapping[str, Any]) -> bool:
        """Whether ETL would do the same for this config."""
        return all(self.values[section] == values[section] for section in ("source", "dataset"))


class Rehearsal:
    """A process that waits for a draft to try; `origin` is the draft's file, for messages. Leaving the context kills it."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._sent: _SentDraft | None = None
        self._is_too_slow = False

    def __enter__(self) -> "Rehearsal":
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-init-")
        self._errors = open(Path(self._folder.name) / "stderr", "w+b")
        command = [sys.executable, "-P", "-c", "from pipelines.rehearsal.process import main; main()"]
        environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_GATEWAY_PORT"}
        package_folder = str(Path(pipelines.__file__).parents[1])
        path = os.pathsep.join([package_folder, *filter(None, [environment.get("PYTHONPATH")])])
        scratch = Path(self._folder.name, "scratch")  # whoever is killed removes nothing
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
        self._folder.cleanup()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _give_up(self) -> None:
        self._is_too_slow = True
        self._kill()

    def announce(self, values: Mapping[str, Any]) -> None:
        """Begin with a config that may still change. What is wrong with it, `try_draft` says."""
        with suppress(LockstepError):
            self._begin(values)

    def try_draft(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Try the config, given as plain values, unless one of the same data was announced, and return what is to be said of the outcome.

        Raises the LockstepError with which ETL or training would refuse it, and SourceError if they would refuse too many rows."""
        with _naming_draft(self._origin):
            if self._sent and not self._sent.is_same_dataset(values):
                self._receive()
                self._sent = None
            sent = self._sent or self._begin(values)
            result = self._check(values, sent)
        if result.unavailable:
            return (f"the draft was not tried with ETL, since {result.unavailable}",)
        limit = self._read(values).source.max_quarantined * (1 if sent.sampled.is_complete else _PARTIAL_SLACK)
        if sum(result.refused.values()) > limit * result.rows:
            share = f"{sum(result.refused.values()):,} of {result.rows:,} rows"
            raise SourceError(
                f"{self._origin} is not written, since ETL would refuse {share}; mend the data, or write a config by hand, with "
                "source.max_quarantined:\n" + "\n".join(_refusal_lines(result))
            )
        return tuple(_outcome_lines(result, sent.sampled))

    def _begin(self, values: Mapping[str, Any]) -> _SentDraft:
        """Have ETL try a config on a sample of its data."""
        folder = Path(tempfile.mkdtemp(prefix="draft-", dir=self._folder.name))
        sampled = sample_tables(self._read(values).source, folder / "sample")
        self._sent = _SentDraft(values, sampled, folder / "version")
        self._send(RehearsalRequest(values, self._origin, str(self._sent.folder), sampled.paths, bool(sampled.unread)))
        return self._sent

    def _check(self, values: Mapping[str, Any], sent: _SentDraft) -> RehearsalResult:
        """The outcome of ETL. Raises what it or a training of its version would raise."""
        from pipelines.data.versions.cross_validation import open_fold  # noqa: PLC0415
        from pipelines.launch.checks import check_before_etl, check_training  # noqa: PLC0415, loads torch while ETL runs

        config = self._read(values)
        check_before_etl(config)
        result = self._receive()
        if result.error:
            kind: type[LockstepError] = getattr(errors, result.error_class)
            raise kind(result.error)
        if sent.sampled.is_complete and not result.unavailable:
            sampled_config = use_samples(config, str(sent.folder), {})
            check_training(sampled_config, open_fold(sampled_config))
        return result

    def _read(self, values: Mapping[str, Any]) -> Config:
        """The config of plain values, which parsing changes."""
        return with_absolute_paths(parse(deepcopy(dict(values)), self._origin), home())

    def _send(self, request: RehearsalRequest) -> None:
        assert self._process.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError):  # it has ended, as `_receive` says
            self._process.stdin.write(json.dumps(asdict(request), default=str) + "\n")
            self._process.stdin.flush()

    def _receive(self) -> RehearsalResult:
        """The result, as soon as it is there: the end of Java takes a second more."""
        assert self._process.stdout is not None, "it is a pipe"
        limit = Timer(MOST_SECONDS, self._give_up)
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


@contextmanager
def _naming_draft(origin: str) -> Iterator[None]:
    """Names the draft in what refuses it."""
    try:
        yield
    except LockstepError as error:
        raise type(error)(f"the draft of {origin} is not written, since ETL or training would refuse it: {error}") from error


def _outcome_lines(result: RehearsalResult, sampled: SampledTables) -> list[str]:
    if sampled.unread:
        return [
            f"ETL takes the rows of {', '.join(sampled.unread)}, which are too many to be tried; the query and its columns were checked"
        ]
    return [f"ETL refuses {line}" for line in _refusal_lines(result)]


def _refusal_lines(result: RehearsalResult) -> list[str]:
    """A line for each of the most frequent reasons."""
    by_frequency = sorted(result.refused.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"{count:,} of {result.rows:,} rows tried: {reason}{_sample(result, reason)}" for reason, count in by_frequency[:MOST_REASONS]]
    rarer = by_frequency[MOST_REASONS:]
    return [*lines, f"{sum(count for _, count in rarer):,} for {len(rarer):,} other reasons"] if rarer else lines


def _sample(result: RehearsalResult, reason: str) -> str:
    record = result.samples.get(reason, "")
    return f", such as {''.join(letter if letter.isprintable() else ' ' for letter in record[:80])}" if record else ""


def main() -> None:
    """The process's own work: start Spark, read requests from standard input, and print their results, each as a line of JSON."""
    logging.disable(logging.WARNING)
    from pipelines.spark.early_start import started_early  # noqa: PLC0415, only this process loads Spark

    with started_early("lockstep init", *WORKER_MODULES):
        from pipelines.rehearsal.etl_stages import try_config  # noqa: PLC0415, while Spark starts

        for line in sys.stdin:
            print(json.dumps(asdict(try_config(RehearsalRequest(**json.loads(line))))), flush=True)
