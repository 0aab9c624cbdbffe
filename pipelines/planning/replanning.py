"""Whether a training that is under way should go on in another layout: by what its steps have taken, against what a plan expects of them.

A plan errs by its model of computing, of links or of reading. Each is corrected by the steps that were measured, and the corrections hold
for other layouts of the same training on the same hardware. Layouts that were measured themselves count as they were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.planning.candidates import PlanCandidate

LEAST_GAIN = 0.15
"""The share of a step that another layout must save: about the median error of a plan."""
LEAST_WAIT = 0.05
"""The share of a step from which waiting for rows counts: each step waits for some microseconds."""


@dataclass(frozen=True)
class MeasuredStep:
    """Seconds of a step in a layout, means over its workers."""

    step_seconds: float
    exchange_seconds: float | None = None
    """Of them, those in which workers wait for each other's gradients; None if the strategy's computing contains them."""
    data_seconds: float = 0.0
    """Of them, those in which workers wait for rows."""

    @property
    def busy_seconds(self) -> float:
        return max(0.0, self.step_seconds - self.data_seconds)


@dataclass(frozen=True)
class LayoutChange:
    """Another candidate, by its position, and what is expected of it."""

    position: int
    step_seconds: float
    saved_seconds: float
    """Over all steps that are left, less the restart."""


def estimate_seconds(candidate: PlanCandidate, planned: PlanCandidate, measured: MeasuredStep) -> float:
    """Seconds of a step of `candidate`, after steps of the `planned` one were measured: computing and exchanges take as much longer than
    planned in both. Where rows were waited for, each worker that reads goes on at that rate."""
    exchange = measured.exchange_seconds
    if exchange is None:
        busy = _busy(candidate) * _ratio(measured.busy_seconds, _busy(planned))
    else:
        busy = _computing(candidate) * _ratio(measured.busy_seconds - exchange, _computing(planned))
        busy += candidate.step.communication_seconds * _ratio(exchange, planned.step.communication_seconds)
    if measured.data_seconds < LEAST_WAIT * measured.step_seconds:
        return busy
    rows, planned_rows = (layout.global_batch / layout.readers for layout in (candidate.layout, planned.layout))
    return max(busy, measured.step_seconds * rows / planned_rows)


def find_change(
    candidates: Sequence[PlanCandidate], steps: Mapping[int, MeasuredStep], current: int, steps_left: int, restart_seconds: float
) -> LayoutChange | None:
    """The candidate whose steps are expected to save most of the time that is left, if they save more than a restart takes, and LEAST_GAIN
    of a step. `steps` are those that were measured, by the positions of their candidates; None if the run should stay as it is."""
    now = steps[current]
    expected = {
        position: steps[position].step_seconds if position in steps else estimate_seconds(candidate, candidates[current], now)
        for position, candidate in enumerate(candidates)
    }
    best = min(expected, key=lambda position: expected[position])
    saved = steps_left * (now.step_seconds - expected[best]) - restart_seconds
    if best == current or saved <= 0 or expected[best] > (1 - LEAST_GAIN) * now.step_seconds:
        return None
    return LayoutChange(best, expected[best], saved)


def _busy(candidate: PlanCandidate) -> float:
    return candidate.step.step_seconds - candidate.step.data_seconds


def _computing(candidate: PlanCandidate) -> float:
    return _busy(candidate) - candidate.step.communication_seconds


def _ratio(measured: float, planned: float) -> float:
    return measured / planned if planned > 0 and measured > 0 else 1.0
