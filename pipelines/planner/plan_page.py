"""The page of a plan: its best candidates with the lines to paste, what steps and memory consist of, and hours and costs of all."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

from pipelines.errors import ConfigError
from pipelines.planner.plan import TrainingPlan
from pipelines.planner.plan_text import best_kinds, list_candidates, settings_lines
from pipelines.planning.candidates import PlanCandidate
from pipelines.planning.memory import usable_bytes
from pipelines.report.figures.canvas import UndefinedError
from pipelines.report.figures.plans import CostPoint, PartBar, cost_points, part_bars
from pipelines.report.rendering import Code, Facts, Figure, Note, PageTable, Picture, percentage, render
from pipelines.runtime import atomic

_GIB = 2**30
_MEMORY_CAPTION = (
    "What the memory of a worker holds, of the one that needs most. The line is what a device has, less what CUDA and libraries take."
)
_STEP_CAPTION = "What a step consists of. Communication is what nothing hides; a bubble is what stages wait for each other."


def plan_page(plan: TrainingPlan) -> str:
    """The page as one HTML file, which needs no network."""
    listed, model = list_candidates(plan), plan.job.model
    best = plan.candidates[0]
    name = plan.config.name if plan.config else model.name
    return render(
        "plan.html",
        title=f"Plan of {name}",
        lead=f"{len(plan.candidates):,} layouts of {model.name} on {', '.join(dict.fromkeys(c.cluster.name for c in plan.candidates))}",
        headline=_headline(plan, best),
        notes=[Note(note) for note in plan.notes],
        choices=[
            {
                "title": f"{choice.kind}: {choice.candidate.cluster.name}",
                "reason": choice.reason,
                "settings": "\n".join(settings_lines(choice.candidate, plan)),
            }
            for choice in (plan.choices if plan.has_rows else plan.choices[:1])
        ],
        figures=[
            {"title": "Steps", "figure": _figure(lambda: part_bars(list(map(_step_bar, listed)), "seconds"), _STEP_CAPTION)},
            {"title": "Memory", "figure": _figure(lambda: part_bars(list(map(_memory_bar, listed)), "GiB"), _MEMORY_CAPTION)},
            *([{"title": "Hours and costs", "figure": _costs(plan)}] if plan.has_rows else []),
        ],
        candidates=_table(plan, listed),
        basis=_basis(plan),
    )


def write_plan_page(plan: TrainingPlan, path: str | Path) -> None:
    """Write the page into a file. Raises ConfigError if that cannot be done."""
    try:
        atomic.write_file(Path(path), plan_page(plan).encode())
    except OSError as error:
        raise ConfigError(f"page {path} cannot be written: {error.strerror or error}; name another file") from error


def _headline(plan: TrainingPlan, best: PlanCandidate) -> Facts:
    step = best.step
    tiles: Facts = [
        ("seconds of the fastest step", step.step_seconds),
        (f"{plan.job.model.unit} a second", step.units_per_second),
        ("model FLOPs utilisation", percentage(step.mfu, 1)),
        ("GiB of a worker", step.memory_gib),
    ]
    return [*tiles, ("expected hours", best.expected_hours), ("cost", best.cost)] if plan.has_rows else tiles


def _label(candidate: PlanCandidate) -> str:
    return f"{candidate.cluster.name}  {candidate.layout.describe()}"


def _step_bar(candidate: PlanCandidate) -> PartBar:
    step = candidate.step
    parts = {
        "matrix products": step.matmul_seconds,
        "attention": step.attention_seconds,
        "other operators": step.elementwise_seconds,
        "update": step.optimizer_seconds,
        "communication": step.communication_seconds,
        "bubble": step.bubble_seconds,
        "data": step.data_seconds,
    }
    return PartBar(_label(candidate), parts)


def _memory_bar(candidate: PlanCandidate) -> PartBar:
    memory = candidate.step.memory
    parts = {field.name: getattr(memory, field.name) / _GIB for field in fields(memory)}
    return PartBar(_label(candidate), parts, usable_bytes(candidate.cluster.hardware) / _GIB)


def _costs(plan: TrainingPlan) -> Figure:
    points = [
        CostPoint(candidate.cluster.name, candidate.expected_hours, candidate.cost, ", ".join(best_kinds(candidate, plan)))
        for candidate in plan.candidates
    ]
    return _figure(lambda: cost_points(points, "cost"), "Each point is a layout, with the hours and the cost that failures add.")


def _figure(draw: Callable[[], bytes], caption: str) -> Figure:
    """A figure, or a note that says why there is none."""
    try:
        return Figure(Picture(draw(), caption, "svg+xml"), caption)
    except UndefinedError as reason:
        return Figure(Note(f"There is no figure: {reason}."))


def _table(plan: TrainingPlan, listed: Sequence[PlanCandidate]) -> PageTable:
    header = ["hardware", "layout", "GiB", "step, s", f"{plan.job.model.unit}/s", "MFU", "limit"]
    rows: list[list[object]] = [
        [
            candidate.cluster.name,
            Code(candidate.layout.describe()),
            candidate.step.memory_gib,
            candidate.step.step_seconds,
            candidate.step.units_per_second,
            percentage(candidate.step.mfu, 1),
            candidate.step.limit,
        ]
        for candidate in listed
    ]
    if plan.has_rows:
        header += ["hours", "expected", "cost"]
        rows = [[*row, candidate.hours, candidate.expected_hours, candidate.cost] for row, candidate in zip(rows, listed, strict=True)]
    more = len(plan.candidates) - len(listed)
    return PageTable(header, rows, f"{more:,} more candidates are in what --json prints." if more else "")


def _basis(plan: TrainingPlan) -> Facts:
    """The data sheets, and their sources."""
    sheets = {candidate.cluster.hardware.name: candidate.cluster.hardware for candidate in plan.candidates}
    facts: Facts = [("parameters", plan.job.model.parameters), ("global batch", plan.job.global_batch)]
    for hardware in sheets.values():
        fractions = ", ".join(f"{name} {fraction.fraction:g} ({fraction.basis})" for name, fraction in hardware.achieved)
        facts.append((f"{hardware.name}, reached of its peaks", fractions))
        facts.append((f"{hardware.name}, sources", ", ".join(hardware.sources)))
    return facts
