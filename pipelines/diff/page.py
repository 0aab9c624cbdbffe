"""The page of a difference, as one HTML file: what differs, rows that do, and the distributions of columns."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.data.versions.versions import Version
from pipelines.diff.comparison import Side, VersionChanges
from pipelines.diff.drift import ColumnDrift
from pipelines.diff.row_changes import RowChanges
from pipelines.diff.sample_rows import POSITION, SPLIT_COLUMN, Row, read_sample_rows
from pipelines.report.rendering import Best, PageTable, render

BARS = 24
MOST_CARDS = 60
"""Columns with a chart, those that differ most; all have a line in the table."""
_NAMES = 10
_TAIL = 0.005
"""Share of the numbers that lies beyond either end of a chart, and is counted in its outer bars."""
_TEXT = 60


def changes_page(difference: VersionChanges, before: Version, now: Version | None) -> str:
    """The page. `now` is None for a table. Raises CorruptError if rows that are shown lie in a damaged part."""
    rows = difference.rows
    drifts = sorted(difference.columns.drifts.items(), key=lambda pair: -(pair[1].psi or 0))
    blocks = {
        "Schema": difference.schema.lines(),
        "Encoders": difference.encoders.lines(),
        "Refused rows": [f"{reason}: {first:,} → {second:,}" for reason, (first, second) in difference.refused.items()],
        "Settings": difference.settings.lines(),
        "Sources": difference.sources.lines(),
    }
    return render(
        "diff.html",
        title="What changed",
        lead=f"{difference.before.place} and {difference.now.place}",
        sides=[(name, _describe(side)) for name, side in (("A", difference.before), ("B", difference.now))],
        findings=difference.columns.findings,
        rows=_row_table(rows) if rows else None,
        rows_note=rows.note if rows else "",
        samples=list(_sample_tables(rows, before, now)) if rows and now else [],
        columns=[_card(name, drift, difference) for name, drift in drifts[:MOST_CARDS]],
        column_table=_column_table(drifts),
        method=_describe_method(difference),
        changes=[(title, lines) for title, lines in blocks.items() if lines],
    )


def _describe(side: Side) -> str:
    return ", ".join(filter(None, [side.place, side.digest and f"digest {side.digest}", side.created and f"made {side.created} UTC"]))


def _describe_method(difference: VersionChanges) -> str:
    limits = difference.columns.limits
    return (
        f"Distributions of the training split. A column differs where its population stability index is at least {limits.psi:g}, or its "
        f"share of missing values differs by {limits.missing:.1%}, or a category is new or gone, and where that is beyond chance: of equal "
        f"distributions, any column would be named with a probability of at most {limits.chance:.1%}."
    )


def _row_table(rows: RowChanges) -> PageTable:
    cells = [[name, *vars(split).values()] for name, split in rows.by_split.items()]
    return PageTable(["split", "A", "B", "added", "removed", "changed", "moved"], cells)


def _sample_tables(rows: RowChanges, before: Version, now: Version) -> Iterator[PageTable]:
    for caption, version, places in (("Added rows", now, rows.added), ("Removed rows", before, rows.removed)):
        if places:
            values = read_sample_rows(version, places)
            header = list(dict.fromkeys(name for row in values for name in row))
            yield PageTable(header, [[_show(row.get(name)) for name in header] for row in values], f"{caption}, some of them")
    if rows.changed:
        pairs = zip(*(read_sample_rows(*side) for side in _sides_of_changes(rows, before, now)), strict=True)
        yield _table_of_changes(list(pairs))


def _sides_of_changes(rows: RowChanges, before: Version, now: Version) -> list[tuple[Version, list[tuple[str, int]]]]:
    return [(before, [first for first, _ in rows.changed]), (now, [second for _, second in rows.changed])]


def _table_of_changes(pairs: Sequence[tuple[Row, Row]]) -> PageTable:
    """Altered rows, with both values of what differs in bold. Of rows without a visible difference, a column that is not shown differs."""
    names = [name for name in dict.fromkeys(name for pair in pairs for row in pair for name in row) if name not in (SPLIT_COLUMN, POSITION)]
    cells = []
    for first, second in pairs:
        values = [(_show(first.get(name)), _show(second.get(name))) for name in names]
        cells.append([second[SPLIT_COLUMN], second[POSITION], *(a if a == b else Best(f"{a} → {b}") for a, b in values)])
    return PageTable([SPLIT_COLUMN, POSITION, *names], cells, "Altered rows, some of them")


def _show(value: object) -> object:
    """A value as a page has it: numbers of few digits, and the beginning of a text."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "" if value is None else str(value)
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"


def _card(name: str, drift: ColumnDrift, difference: VersionChanges) -> dict[str, Any]:
    lines = [finding.text for finding in difference.columns.findings if finding.column == name]
    if drift.psi is not None:
        lines.append(f"PSI {drift.psi:.3g}; by chance {drift.expected_psi:.2g} ± {drift.psi_spread:.1g}")
    if shares := drift.missing_shares:
        lines.append(f"missing {shares[0]:.2%} → {shares[1]:.2%}")
    if reason := difference.columns.not_compared.get(name):
        lines.append(f"not compared: {reason}")
    if name in difference.columns.raw:
        lines.append("compared in the raw rows of validation and test")
    return {"name": name, "lines": lines, "chart": _chart(drift)}


def _chart(drift: ColumnDrift) -> Mapping[str, Any] | None:
    before, now = drift.before.numbers, drift.now.numbers
    if before is not None and now is not None and len(before) and len(now):
        return _number_chart(before, now)
    if drift.bins is None:
        return None
    sides = [counts / max(counts.sum(), 1) for counts in (drift.bins.before, drift.bins.now)]
    places = np.argsort(-np.maximum(*sides), kind="stable")[:_NAMES]
    first, second = (side[places].tolist() for side in sides)
    return {"names": [drift.bins.labels[place] for place in places], "before": first, "now": second, "highest": max(*first, *second)}


def _number_chart(before: np.ndarray, now: np.ndarray) -> Mapping[str, Any]:
    low, high = (
        float(end(values)) for end, values in zip((np.min, np.max), zip(*map(_inner_range, (before, now)), strict=True), strict=True)
    )
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BARS + 1)[1:-1]
    counts = [np.bincount(np.searchsorted(edges, values, side="right"), minlength=BARS) for values in (before, now)]
    first, second = ((side / side.sum()).tolist() for side in counts)
    return {"names": [], "ends": [f"{low:.4g}", f"{high:.4g}"], "before": first, "now": second, "highest": max(*first, *second)}


def _inner_range(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [_TAIL, 1 - _TAIL])
    return float(low), float(high)


def _column_table(drifts: Sequence[tuple[str, ColumnDrift]]) -> PageTable:
    header = ["column", "values A", "values B", "PSI", "by chance", "missing A", "missing B"]
    cells = []
    for name, drift in drifts:
        shares = drift.missing_shares or (None, None)
        cells.append([name, drift.before.values, drift.now.values, drift.psi, drift.expected_psi if drift.bins else None, *shares])
    return PageTable(header, cells)
