"""The table of what was done and what came of it, and the dated result."""

import statistics
from collections.abc import Iterable
from typing import Any

from chaos.training import Case, Outcome

Row = dict[str, Any]


def fault_rows(case: str, outcomes: Iterable[Outcome], result: Row) -> list[Row]:
    """One row for each kind of fault in a case."""
    outcomes = list(outcomes)
    rows = []
    for fault in dict.fromkeys(outcome.fault for outcome in outcomes):
        same = [outcome for outcome in outcomes if outcome.fault == fault]
        rows.append(
            {
                "case": case,
                "fault": fault,
                "times": len(same),
                "recovered": sum(outcome.recovered for outcome in same),
                "seconds, median": _over_known(statistics.median, [outcome.seconds for outcome in same]),
                "seconds, most": _over_known(max, [outcome.seconds for outcome in same]),
                "until new processes": _over_known(statistics.median, [outcome.detected for outcome in same]),
                "their start": _over_known(statistics.median, [outcome.started for outcome in same]),
                "rows lost": result.get("rows lost"),
                "rows repeated": result.get("rows repeated"),
                "weights equal": str(result.get("weights equal", "–")),
            }
        )
    return rows


def training_row(case: Case) -> Row:
    return {"case": case.name, "faults": len(case.outcomes), **{name: _plain(value) for name, value in case.result.items()}}


def _over_known(summary: Any, values: list[float | None]) -> float | None:
    seconds = [value for value in values if value is not None]
    return round(summary(seconds), 1) if seconds else None


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, bool) else value
