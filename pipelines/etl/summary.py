"""Logs notes, and words the last lines of a run: the version, and the refused rows by reason with their folder and a sample."""

import logging
from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.config import Config
from pipelines.data.features import refusal_kind
from pipelines.data.versions import storage
from pipelines.data.versions.manifest import Folds, Manifest
from pipelines.errors import DatasetError
from pipelines.etl.quality import reason_lines, share_text

log = logging.getLogger(__name__)


def log_notes(notes: Iterable[str]) -> None:
    """Log what a person may want to change, each in a line."""
    for note in notes:
        log.warning("%s", note)


def version_summary(config: Config, manifest: Manifest) -> str:
    root = f"{config.dataset.path}/{manifest.version}"
    rows = ", ".join(f"{split} {summary.rows:,}" for split, summary in manifest.splits.items())
    lines = [f"{root}: {rows}; digest {manifest.digest[:12]}"]
    if manifest.folds:
        lines.append(describe_folds(manifest.folds))
    if manifest.shares.said:
        lines.append(manifest.shares.said)
    if manifest.quarantined:
        quarantine = f"{root}/quarantine-{manifest.attempt}"
        lines.append(f"{share_text(manifest.rows_parsed, manifest.quarantined)}, and are kept in {quarantine}:")
        lines += reason_lines(manifest.quarantined, _samples(quarantine, set(manifest.quarantined)))
    return "\n".join(lines)


def describe_folds(folds: Folds) -> str:
    """The number of folds and their sizes in words."""
    sizes = [rows for counts in folds.rows.values() for rows in counts]
    repeats = len(folds.rows)
    times = f", {repeats} times" if repeats > 1 else ""
    return f"{len(sizes) // repeats} folds{times}, of {min(sizes):,} to {max(sizes):,} rows"


def _samples(quarantine: str, reasons: set[str]) -> dict[str, str]:
    """A record for each reason. A store that fails ends the search, since the version is complete without it."""
    samples: dict[str, str] = {}
    with suppress(DatasetError, OSError, pa.ArrowException):
        filesystem, folder = storage.locate(quarantine)
        for entry in storage.entries(filesystem, folder):
            if reasons <= samples.keys():
                break
            table = pq.read_table(entry.path, columns=["reason", "record"], filesystem=filesystem)
            for reason, record in zip(table["reason"].to_pylist(), table["record"].to_pylist(), strict=True):
                samples.setdefault(reason if reason in reasons else refusal_kind(reason), record or "")
    return samples
