"""The manifest of what an attempt has made."""

from importlib.metadata import version
from platform import python_version

import pyarrow as pa

from pipelines.config import Config
from pipelines.dataset.manifest import Manifest, content_digest, split_summaries
from pipelines.dataset.schema import schema_to_text
from pipelines.etl.attempt import Attempt, Report
from pipelines.etl.fit import Fitted


def describe(
    config: Config,
    attempt: Attempt,
    schema: pa.Schema,
    fitted: Fitted,
    report: Report,
    parsed: int,
    warnings: tuple[str, ...],
) -> Manifest:
    """`schema` is that of the query's output, `parsed` the rows of the sources. The run and the sources are still to be named."""
    return Manifest(
        name=config.name,
        version=attempt.root.rpartition("/")[2],
        digest=content_digest(fitted.encoders, report.row_groups),
        attempt=attempt.name,
        identity=config.data_identity,
        raw_schema=schema_to_text(schema),
        encoders=fitted.encoders,
        splits=split_summaries(fitted.encoders, report.row_groups),
        rows_parsed=parsed,
        quarantined=dict(sorted(report.refused.items())),
        profile=fitted.profile,
        warnings=warnings,
        versions={"python": python_version()} | {package: version(package) for package in ("pyspark", "pyarrow", "numpy")},
    )
