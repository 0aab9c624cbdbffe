"""The manifest of what an attempt has made."""

from datetime import UTC, datetime
from importlib.metadata import version
from platform import python_version

import pyarrow as pa

from pipelines.config import Config
from pipelines.dataset.manifest import SPLITS, Manifest, SourceFile, Split, content_digest
from pipelines.dataset.parts import RowGroup
from pipelines.dataset.schema import schema_to_text
from pipelines.etl.attempt import Attempt, Report
from pipelines.etl.fit import Fitted

Sources = dict[str, tuple[SourceFile, ...]]
"""Files by table."""


def describe(
    config: Config,
    sources: Sources,
    attempt: Attempt,
    schema: pa.Schema,
    fitted: Fitted,
    report: Report,
    parsed: int,
    warnings: tuple[str, ...],
) -> Manifest:
    """`schema` is that of the query's output, `parsed` the rows of the sources. The run is still to be named."""
    row_bytes = sum(encoded.column.row_bytes for encoded in fitted.encoders.values())
    return Manifest(
        name=config.name,
        version=attempt.root.rpartition("/")[2],
        digest=content_digest(fitted.encoders, report.row_groups),
        attempt=attempt.name,
        created=datetime.now(UTC).isoformat(),
        identity=config.data_identity,
        sources=sources,
        raw_schema=schema_to_text(schema),
        encoders=fitted.encoders,
        splits={split: _split(attempt, [group for group in report.row_groups if group.split == split], row_bytes) for split in SPLITS},
        rows_parsed=parsed,
        quarantined=dict(sorted(report.refused.items())),
        profile=fitted.profile,
        warnings=warnings,
        versions={"python": python_version()} | {package: version(package) for package in ("pyspark", "pyarrow", "numpy")},
    )


def _split(attempt: Attempt, groups: list[RowGroup], row_bytes: int) -> Split:
    rows = sum(group.rows for group in groups)
    files = sorted({f"{attempt.root}/{group.file}" for group in groups})
    sizes = [found.size for found in attempt.filesystem.get_file_info(files)]
    return Split(rows=rows, parts=len(files), row_groups=len(groups), bytes=sum(sizes), decoded_bytes=rows * row_bytes)
