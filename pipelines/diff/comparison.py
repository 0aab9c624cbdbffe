"""Compares two versions, or a version and a table of raw rows such as the input of predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pipelines.data.versions.versions import Version
from pipelines.diff.column_samples import (
    ComparedColumn,
    columns_to_compare,
    hidden_missing,
    raw_samples,
    table_samples,
    version_samples,
)
from pipelines.diff.drift import (
    DEFAULT_LIMITS,
    ColumnDrift,
    ColumnSample,
    DriftFinding,
    Limits,
    compare_refusals,
    compare_samples,
    drift_values,
    name_drifts,
)
from pipelines.diff.manifest_changes import (
    NamedChanges,
    encoder_changes,
    refusal_drifts,
    schema_changes,
    setting_changes,
    source_changes,
)
from pipelines.diff.row_changes import RowChanges, compare_rows

REFUSED = "refused: "
"""Begins the name of a reason of the quarantine, where columns are named."""


@dataclass(frozen=True)
class ColumnChanges:
    """Differences in the distributions of columns, in the training split."""

    drifts: Mapping[str, ColumnDrift]
    not_compared: Mapping[str, str]
    """Why not, by column. What is missing in it is compared nevertheless."""
    raw: frozenset[str]
    """Columns that were compared in the raw rows of validation and test, since encoded values could not be."""
    findings: tuple[DriftFinding, ...]
    """Differences above the limits and beyond chance, those of refused rows among them."""
    limits: Limits


@dataclass(frozen=True)
class Side:
    """One of the two things that are compared, in words."""

    place: str
    version: str = ""
    digest: str = ""
    created: str = ""


@dataclass(frozen=True)
class VersionChanges:
    before: Side
    now: Side
    columns: ColumnChanges
    rows: RowChanges | None = None
    """None for a table, whose rows are other ones by intent."""
    schema: NamedChanges = field(default_factory=NamedChanges)
    encoders: NamedChanges = field(default_factory=NamedChanges)
    settings: NamedChanges = field(default_factory=NamedChanges)
    sources: NamedChanges = field(default_factory=NamedChanges)
    refused: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Rows before and now, by reason."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs in rows, columns, encoders and refused rows. Of a table, whether nothing is above the limits and beyond
        chance."""
        if self.rows is None:
            return not (self.columns.findings or self.schema)
        if self.rows.basis == "nothing" and self.before.digest != self.now.digest:
            return False
        return not (self.rows.unequal or self.schema or self.encoders or any(first != second for first, second in self.refused.values()))

    def values(self) -> dict[str, Any]:
        """Everything as JSON values: `rows` by split, `columns` by name, and `findings`, the columns that differ beyond chance."""
        named: dict[str, list[str]] = {}
        for finding in self.columns.findings:
            named.setdefault(finding.column, []).append(finding.kind)
        columns = {
            name: {
                **drift_values(drift),
                "findings": named.get(name, []),
                "not_compared": self.columns.not_compared.get(name, ""),
                "compared_in": "raw rows of validation and test" if name in self.columns.raw else "train",
            }
            for name, drift in self.columns.drifts.items()
        }
        return {
            "different": not self.is_empty,
            "before": vars(self.before),
            "now": vars(self.now),
            "rows": {split: vars(rows) for split, rows in self.rows.by_split.items()} if self.rows else {},
            "rows_compared_by": self.rows.basis if self.rows else "nothing",
            "columns": columns,
            "findings": [vars(finding) for finding in self.columns.findings],
            "limits": vars(self.columns.limits),
            **{name: vars(getattr(self, name)) for name in ("schema", "encoders", "settings", "sources")},
            "refused": {reason: list(rows) for reason, rows in self.refused.items()},
        }


def compare_versions(before: Version, now: Version, places: tuple[str, str] = ("", ""), limits: Limits = DEFAULT_LIMITS) -> VersionChanges:
    """Compare two versions. Raises CorruptError if a file of them is damaged or gone, MismatchError if an encoder is not installed."""
    first, second = before.manifest, now.manifest
    reasons = dict.fromkeys([*first.quarantined, *second.quarantined])
    return VersionChanges(
        _side(before, places[0]),
        _side(now, places[1]),
        columns=compare_columns(before, now, limits),
        rows=compare_rows(before, now),
        schema=schema_changes(first, second),
        encoders=encoder_changes(first, second),
        settings=setting_changes(first, second),
        sources=source_changes(first, second),
        refused={reason: (first.quarantined.get(reason, 0), second.quarantined.get(reason, 0)) for reason in reasons},
    )


def compare_columns(before: Version, now: Version, limits: Limits = DEFAULT_LIMITS) -> ColumnChanges:
    """Compare the distributions of all columns of the training split that both versions have, and the reasons of refused rows."""
    compared = columns_to_compare(before.manifest.encoders, now.manifest.encoders)
    samples = [
        dict(version_samples(version, {column.name: getattr(column, side) for column in compared}))
        for version, side in ((before, "before"), (now, "now"))
    ]
    refusals = {f"{REFUSED}{reason}": drift for reason, drift in refusal_drifts(before.manifest, now.manifest).items()}
    uncertain = {}
    for column in compared:
        if reason := column.refusal() or hidden_missing(before, column) or hidden_missing(now, column):
            uncertain[column.label] = reason
    raw = (raw_samples(before, uncertain), raw_samples(now, uncertain)) if uncertain else ({}, {})
    return _column_changes(compared, samples[0], samples[1], uncertain, raw, refusals, limits)


def compare_table(
    before: Version, table: pa.Table, lacking: tuple[str, ...] = (), places: tuple[str, str] = ("", ""), limits: Limits = DEFAULT_LIMITS
) -> VersionChanges:
    """Compare a table of raw rows with the training split of a version, whose encoders read it. `lacking` are columns of targets that it
    does not have."""
    columns = {name: fitted for name, fitted in before.manifest.encoders.items() if not {*fitted.inputs} & {*lacking}}
    compared = columns_to_compare(columns, columns)
    encoders = {column.name: column.before for column in compared}
    first, second = dict(version_samples(before, encoders)), table_samples(table, encoders)
    uncertain = {column.label: reason for column in compared if (reason := hidden_missing(before, column))}
    refusals = {f"{REFUSED}{name}": compare_refusals(0, len(table), rows, len(table)) for name, rows in second.refused.items()}
    changes = _column_changes(compared, first, second.samples, uncertain, ({}, {}), refusals, limits)
    refused = {name: (0, rows) for name, rows in second.refused.items()}
    return VersionChanges(_side(before, places[0]), Side(places[1]), columns=changes, refused=refused)


def _side(version: Version, place: str) -> Side:
    manifest = version.manifest
    return Side(place or version.root, manifest.version, manifest.digest, f"{manifest.created:%Y-%m-%d %H:%M}")


def _column_changes(
    compared: list[ComparedColumn],
    before: Mapping[str, ColumnSample],
    now: Mapping[str, ColumnSample],
    uncertain: Mapping[str, str],
    raw: tuple[Mapping[str, ColumnSample], Mapping[str, ColumnSample]],
    refusals: Mapping[str, ColumnDrift],
    limits: Limits,
) -> ColumnChanges:
    """`uncertain` are the columns whose encoded values cannot be compared, with the reason. `raw` are samples of them, if there are any."""
    drifts, not_compared = {}, {}
    for column in compared:
        samples = before[column.name], now[column.name]
        if reason := uncertain.get(column.label):
            if column.label in raw[0] and column.label in raw[1]:
                samples = raw[0][column.label], raw[1][column.label]
            else:
                not_compared[column.label] = reason
                samples = _without_values(samples[0]), _without_values(samples[1])
        drifts[column.label] = compare_samples(*samples)
    compared_raw = frozenset(label for label in uncertain if label not in not_compared)
    return ColumnChanges(drifts, not_compared, compared_raw, tuple(name_drifts({**drifts, **refusals}, limits)), limits)


def _without_values(sample: ColumnSample) -> ColumnSample:
    return ColumnSample(sample.rows, sample.missing)
