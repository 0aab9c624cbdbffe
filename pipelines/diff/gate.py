"""Stops an ETL whose rows have drifted away from the previous version of its pipeline, before it is committed: `source.drift`."""

import logging

from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.diff.comparison import REFUSED, compare_columns
from pipelines.diff.drift import Limits
from pipelines.diff.sides import previous_version
from pipelines.errors import QualityError

log = logging.getLogger(__name__)
_MOST_SHOWN = 10


def check_drift(config: Config, written: Version) -> None:
    """Compare a version whose files are written with the newest earlier one of the same pipeline, if there is any. Of an increment,
    `written` has the row groups of the new rows alone. Raises QualityError if a column of the training split has drifted beyond
    `source.drift`."""
    assert config.source.drift is not None, "the config has limits"
    previous = previous_version(config.dataset.path, config.name, written.root)
    if previous is None:
        log.info("source.drift: there is no earlier version of %s in %s to compare with", config.name, config.dataset.path)
        return
    settings = config.source.drift
    changes = compare_columns(previous, written, Limits(settings.psi, settings.missing, settings.chance))
    findings = [finding for finding in changes.findings if finding.kind in ("drift", "missing") and not finding.column.startswith(REFUSED)]
    for name, reason in changes.not_compared.items():
        log.warning("source.drift: %s is not compared with version %s: %s", name, previous.manifest.version, reason)
    if findings:
        lines = [f"  {finding.column}: {finding.text}" for finding in findings[:_MOST_SHOWN]]
        more = [f"  and {len(findings) - _MOST_SHOWN} more"] if len(findings) > _MOST_SHOWN else []
        raise QualityError(
            f"{len(findings)} column(s) differ from version {previous.manifest.version} by more than source.drift allows, so that "
            "no version is made. Mend the source, or raise source.drift.psi or source.drift.missing; without source.drift, nothing is "
            "compared:\n" + "\n".join([*lines, *more])
        )
