"""A difference as text for a terminal: one block for each kind of change, and nothing about what is equal."""

from collections.abc import Iterator, Sequence

import numpy as np

from pipelines.diff.comparison import REFUSED, Side, VersionChanges
from pipelines.diff.drift import ColumnDrift

_WIDTH = 12
"""Letters of the names of blocks."""
_MOST_LINES = 20
_BARS = "▁▂▃▄▅▆▇█"


def describe_changes(difference: VersionChanges) -> str:
    """All changes; a line alone if there are none."""
    blocks = [
        ("A", [_describe_side(difference.before)]),
        ("B", [_describe_side(difference.now)]),
        ("", [""]),
        ("rows", list(_row_lines(difference))),
        ("columns", list(_column_lines(difference))),
        ("schema", difference.schema.lines()),
        ("encoders", difference.encoders.lines()),
        (
            "refused",
            [f"{reason}: {first:,} → {second:,} rows" for reason, (first, second) in difference.refused.items() if first != second],
        ),
        ("settings", difference.settings.lines()),
        ("sources", difference.sources.lines()),
    ]
    lines = [line for name, texts in blocks for line in _block(name, texts)]
    return "\n".join([*lines, *([] if not difference.is_empty else [_equal_line(difference)])])


def _equal_line(difference: VersionChanges) -> str:
    if difference.rows is None:
        return "nothing differs beyond the limits and chance"
    return "no difference in rows, columns, encoders and refused rows"


def _block(name: str, texts: Sequence[str]) -> Iterator[str]:
    lines = list(texts[:_MOST_LINES]) + ([f"and {len(texts) - _MOST_LINES:,} more"] if len(texts) > _MOST_LINES else [])
    for place, text in enumerate(lines):
        yield f"{name if not place else '':{_WIDTH}}{text}".rstrip()


def _describe_side(side: Side) -> str:
    facts = [f"made {side.created} UTC" if side.created else "", f"digest {side.digest[:12]}" if side.digest else ""]
    return "  ".join(filter(None, [side.place, *facts]))


def _row_lines(difference: VersionChanges) -> Iterator[str]:
    changes = difference.rows
    if changes is None:
        return
    columns = ("before", "now", "added", "removed", "changed", "moved")
    numbers = [name for name in columns if any(getattr(rows, name) is not None for rows in changes.by_split.values())]
    if changes.basis == "encoded rows":
        numbers.remove("changed")
    cells = [[f"{getattr(rows, name):,}" for name in numbers] for rows in changes.by_split.values()]
    titles = ["A" if name == "before" else "B" if name == "now" else name for name in numbers]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    for name, line in zip(("", *changes.by_split), [titles, *cells], strict=True):
        yield f"{name:10}" + "  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))
    if changes.note:
        yield changes.note


def _column_lines(difference: VersionChanges) -> Iterator[str]:
    """The columns that differ beyond limits and chance, each with its distributions."""
    columns = difference.columns
    names = dict.fromkeys(finding.column for finding in columns.findings)
    of_columns = [name for name in names if not name.startswith(REFUSED)]
    limits = f"PSI {columns.limits.psi:g}, missing {columns.limits.missing:.1%}, chance {columns.limits.chance:.1%}"
    yield f"{len(of_columns)} of {len(columns.drifts)} differ in the training split, beyond {limits}"
    width = max(map(len, names), default=0)
    for name in names:
        texts = [finding.text for finding in columns.findings if finding.column == name]
        yield f"{name:{width}}  {'; '.join(texts)}"
        if name in columns.drifts and (bars := _bars(columns.drifts[name])):
            yield f"{'':{width}}  {bars}"
    if columns.raw:
        yield f"compared in the raw rows of validation and test instead: {', '.join(sorted(columns.raw))}"
    for name, reason in columns.not_compared.items():
        yield f"{name}: not compared, {reason}"


def _bars(drift: ColumnDrift) -> str:
    """The shares of the bins of both sides, as bars that are as high as the highest of all."""
    if drift.bins is None:
        return ""
    shares = [counts / max(counts.sum(), 1) for counts in (drift.bins.before, drift.bins.now)]
    highest = max(float(side.max()) for side in shares)
    levels = [np.ceil(side / highest * len(_BARS)).astype(int) for side in shares]
    first, second = ("".join(_BARS[level - 1] if level else " " for level in side) for side in levels)
    return f"A {first}  B {second}  {drift.bins.labels[0]} … {drift.bins.labels[-1]}"
