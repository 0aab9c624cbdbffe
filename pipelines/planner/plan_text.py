"""Shows a plan: a table and the best candidates in the terminal, and candidates as plain values."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import yaml

from pipelines.planner.layout_settings import layout_settings
from pipelines.planner.plan import TrainingPlan
from pipelines.planning.candidates import PlanCandidate
from pipelines.planning.layouts import DEGREES

_SHOWN = 12
"""Candidates in the table, equally many of each hardware, besides the best of each kind."""
_PARTS = ("compute", "communication", "bubble", "optimizer", "data")


def candidate_values(candidate: PlanCandidate, plan: TrainingPlan) -> dict[str, Any]:
    """A candidate as plain values; hours and costs are null where the number of rows is unknown."""
    step, layout, unit = candidate.step, candidate.layout, plan.job.model.unit
    return {
        "hardware": candidate.cluster.name,
        "layout": layout.describe(),
        "workers": layout.workers,
        **{name: getattr(layout, name) for name in (*DEGREES, "microbatch", "accumulation", "full_copies", "precision", "checkpointing")},
        f"{unit}_per_second": step.units_per_second,
        f"{unit}_per_second_per_worker": step.units_per_second_per_worker,
        "rows_per_second": step.rows_per_second,
        "step_seconds": step.step_seconds,
        **{f"{part}_seconds": getattr(step, f"{part}_seconds") for part in _PARTS},
        "memory_gib": step.memory_gib,
        "memory_parts_gib": {field.name: getattr(step.memory, field.name) / 2**30 for field in fields(step.memory)},
        "mfu": step.mfu,
        "limit": step.limit,
        "hours": candidate.hours if plan.has_rows else None,
        "expected_hours": candidate.expected_hours if plan.has_rows else None,
        "cost": candidate.cost if plan.has_rows else None,
        "checkpoint_every_seconds": candidate.failures.interval_seconds,
        "train": layout_settings(layout, plan.config),
    }


def plan_json(plan: TrainingPlan) -> str:
    """All candidates as a JSON list, the fastest first; those that are the best of a kind say so."""
    return json.dumps(
        [{**candidate_values(candidate, plan), "best": best_kinds(candidate, plan)} for candidate in plan.candidates], indent=1
    )


def best_kinds(candidate: PlanCandidate, plan: TrainingPlan) -> list[str]:
    """The kinds of which a candidate is the best."""
    return [choice.kind for choice in plan.choices if choice.candidate is candidate]


def plan_text(plan: TrainingPlan) -> str:
    """The plan as a terminal shows it."""
    listed = list_candidates(plan)
    lines = [*(f"assumed   {note}" for note in plan.notes), *_table(listed, plan)]
    if len(plan.candidates) > len(listed):
        lines.append(f"{len(plan.candidates) - len(listed):,} more candidates are in what --json prints")
    for choice in plan.choices if plan.has_rows else plan.choices[:1]:
        title = f"{choice.kind}: {choice.candidate.cluster.name}. {choice.reason}"
        lines += ["", title, *settings_lines(choice.candidate, plan)]
    return "\n".join(lines)


def list_candidates(plan: TrainingPlan) -> list[PlanCandidate]:
    """Candidates to show: the fastest of each hardware, and the best of each kind."""
    listed = _first_of_each_hardware(plan.candidates)
    return listed + [choice.candidate for choice in plan.choices if all(choice.candidate is not candidate for candidate in listed)]


def _first_of_each_hardware(candidates: Sequence[PlanCandidate]) -> list[PlanCandidate]:
    names = {candidate.cluster.name for candidate in candidates}
    counts = Counter[str]()
    listed = []
    for candidate in candidates:
        counts[candidate.cluster.name] += 1
        if counts[candidate.cluster.name] <= max(3, _SHOWN // len(names)):
            listed.append(candidate)
    return listed


def settings_lines(candidate: PlanCandidate, plan: TrainingPlan) -> Iterator[str]:
    """The lines to paste into a config."""
    settings: dict[str, Any] = layout_settings(candidate.layout, plan.config)
    if plan.has_rows and candidate.failures.interval_seconds < candidate.failures.work_seconds:
        failures = candidate.failures
        hours = failures.expected_seconds / failures.failures / 3600
        settings["checkpoint"] = {"every_seconds": "auto", "failure_hours": max(0.1, round(hours, 1))}  # a config refuses 0
    yield "  train:"
    for name, value in settings.items():
        text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1_000).strip()
        yield f"    {name}: {text.removesuffix('...').strip()}"


def _table(candidates: Sequence[PlanCandidate], plan: TrainingPlan) -> list[str]:
    rows = [_cells(candidate, plan) for candidate in candidates]
    if not rows:
        return []
    names = list(rows[0])
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    texts = {"hardware", "layout", "limit"}

    def line(cells: dict[str, str]) -> str:
        return "  ".join(cells[name].ljust(widths[name]) if name in texts else cells[name].rjust(widths[name]) for name in names).rstrip()

    return [line({name: name for name in names}), *(line(row) for row in rows)]


def _cells(candidate: PlanCandidate, plan: TrainingPlan) -> dict[str, str]:
    step, unit = candidate.step, plan.job.model.unit
    waits = {"comm.": step.communication_seconds, "bubble": step.bubble_seconds, "data": step.data_seconds}
    cells = {
        "hardware": candidate.cluster.name,
        "layout": candidate.layout.describe(),
        "GiB": f"{step.memory_gib:.1f}",
        "step s": _seconds(step.step_seconds),
        "compute": _seconds(step.compute_seconds + step.optimizer_seconds),
        **{name: _seconds(seconds) for name, seconds in waits.items()},
        f"{unit}/s": f"{step.units_per_second:,.0f}",
        "MFU": f"{step.mfu:.1%}",
    }
    if plan.has_rows:
        cells |= {"hours": f"{candidate.hours:.2f}", "expected": f"{candidate.expected_hours:.2f}", "cost": f"{candidate.cost:,.2f}"}
    return cells | {"limit": step.limit}


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g}" if seconds else "0"
