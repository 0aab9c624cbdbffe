"""Has a process try a draft with ETL, and says what came of it."""

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines import errors
from pipelines.config import Config, home
from pipelines.config.load import parse, with_absolute_paths
from pipelines.errors import LockstepError, SourceError
from pipelines.rehearsal.process import RehearsalProcess, RehearsalRequest, RehearsalResult
from pipelines.rehearsal.sampled_tables import SampledTables, sample_tables, use_samples

MOST_REASONS = 3
_RECORD_CHARACTERS = 80
_PARTIAL_SLACK = 3.0
"""How many times the permitted share of refused rows a part of the rows may have: its first lines and its last ones are the worst."""


@dataclass(frozen=True)
class _SentDraft:
    """A draft that the process tries, or has tried."""

    values: Mapping[str, Any]
    sampled: SampledTables
    folder: Path
    """Of the dataset version."""


class Rehearsal:
    """The rehearsal of a draft by a process that waits for it; `origin` is the draft's file, for messages."""

    def __init__(self, process: RehearsalProcess, origin: str) -> None:
        self._process = process
        self._origin = origin
        self._sent: _SentDraft | None = None

    def announce(self, values: Mapping[str, Any]) -> None:
        """Begin with a config that may still change. What is wrong with it, `try_draft` says."""
        with suppress(LockstepError):
            self._begin(values)

    def try_draft(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Try the config, given as plain values, unless one of the same data was announced, and return what is to be said of the outcome.

        Raises the LockstepError with which ETL or training would refuse it, and SourceError if they would refuse too many rows."""
        try:
            if self._sent and any(self._sent.values[section] != values[section] for section in ("source", "dataset")):
                self._process.receive()
                self._sent = None
            sent = self._sent or self._begin(values)
            result = self._check(values, sent)
        except LockstepError as error:
            raise type(error)(f"the draft of {self._origin} is not written, since ETL or training would refuse it: {error}") from error
        if result.unavailable:
            return (f"the draft was not tried with ETL, since {result.unavailable}",)
        limit = self._read(values).source.max_quarantined * (1 if sent.sampled.is_complete else _PARTIAL_SLACK)
        if sum(result.refused.values()) > limit * result.rows:
            share = f"{sum(result.refused.values()):,} of {result.rows:,} rows"
            raise SourceError(
                f"{self._origin} is not written, since ETL would refuse {share}; mend the data, or write a config by hand, with "
                "source.max_quarantined:\n" + "\n".join(_refusal_lines(result))
            )
        if sent.sampled.unread:
            tables = ", ".join(sent.sampled.unread)
            return (f"ETL takes the rows of {tables}, which are too many to be tried; the query and its columns were checked",)
        return tuple(f"ETL refuses {line}" for line in _refusal_lines(result))

    def _begin(self, values: Mapping[str, Any]) -> _SentDraft:
        """Have ETL try a config on a sample of its data."""
        folder = Path(tempfile.mkdtemp(prefix="draft-", dir=self._process.folder))
        sampled = sample_tables(self._read(values).source, folder / "sample")
        self._sent = _SentDraft(values, sampled, folder / "version")
        self._process.send(RehearsalRequest(values, self._origin, str(self._sent.folder), sampled.paths, bool(sampled.unread)))
        return self._sent

    def _check(self, values: Mapping[str, Any], sent: _SentDraft) -> RehearsalResult:
        """The outcome of ETL. Raises what it or a training of its version would raise."""
        from pipelines.data.versions.folds import open_fold  # noqa: PLC0415
        from pipelines.launch.checks import check_before_etl, check_training  # noqa: PLC0415, loads torch while ETL runs

        config = self._read(values)
        check_before_etl(config)
        result = self._process.receive()
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


def _refusal_lines(result: RehearsalResult) -> list[str]:
    """A line for each of the most frequent reasons, with the beginning of a record."""
    by_frequency = sorted(result.refused.items(), key=lambda item: (-item[1], item[0]))
    lines = []
    for reason, count in by_frequency[:MOST_REASONS]:
        beginning = "".join(letter if letter.isprintable() else " " for letter in result.samples.get(reason, "")[:_RECORD_CHARACTERS])
        lines.append(f"{count:,} of {result.rows:,} rows tried: {reason}{f', such as {beginning}' if beginning else ''}")
    rarer = by_frequency[MOST_REASONS:]
    return [*lines, f"{sum(count for _, count in rarer):,} for {len(rarer):,} other reasons"] if rarer else lines
