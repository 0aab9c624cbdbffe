"""Where the time of a step goes: the clock and its metrics, on literal numbers."""

from collections.abc import Callable, Iterator

import pytest
import torch

from pipelines.train import step_clock
from pipelines.train.step_clock import GPU_STEPS_PER_MEASUREMENT, GpuStepClock, PhaseTimes, StepClock, Totals, phase_metrics, worker_metrics


def at(*times: float) -> Callable[[], float]:
    """A clock's `now` that shows these times, one after the other."""
    next_time: Iterator[float] = iter(times)
    return lambda: next(next_time)


def test_every_second_counts_to_the_phase_in_which_it_passed() -> None:
    clock = StepClock(at(0, 1, 3, 6, 10, 15, 21, 28))
    for phase in ("data", "step", "backward", "exchange", "optimizer", "checkpoint", "other"):
        clock.start_step() if phase == "step" else clock.enter(phase)
    assert clock.totals() == Totals(1, (2, 3, 4, 5, 6, 7))  # and 1 s before all


def test_a_window_is_the_difference_of_two_readings() -> None:
    now, before = Totals(8, (1.0, 2.0, 4.0, 4.0, 1.0, 0.5)), Totals(6, (0.5, 1.0, 2.0, 3.0, 0.5, 0.5))
    assert now.since(before) == Totals(2, (0.5, 1.0, 2.0, 1.0, 0.5, 0.0))


def test_a_hook_that_exchanges_gradients_is_not_part_of_the_backward_pass() -> None:
    clock = StepClock(at(0, 0, 2, 7, 9))
    clock.enter("backward")
    assert clock.time_hook(lambda state, bucket: state + bucket)(1, 2) == 3
    clock.enter("other")
    assert clock.totals().seconds == (0, 0, 2 + 2, 5, 0, 0)


def test_after_the_last_gradient_the_backward_pass_only_waits() -> None:
    clock, phases = StepClock(), []
    weight = torch.ones(2, requires_grad=True)
    weight.register_post_accumulate_grad_hook(lambda _: phases.append(clock.phase))
    loss = weight.sum()
    clock.enter("backward")
    clock.exchange_after_backward(loss)
    loss.backward()
    assert (phases, clock.phase) == (["backward"], "exchange")


def test_metrics_are_mean_worst_and_whose_that_is() -> None:
    actual = phase_metrics([Totals(2, (0.0, 2.0, 4.0, 6.0, 0.0, 0.0)), Totals(2, (0.0, 6.0, 4.0, 2.0, 0.0, 0.0))])
    assert actual == {
        "time/forward_seconds": 2.0,
        "time/forward_seconds_worst": 3.0,
        "time/forward_seconds_worst_rank": 1.0,
        "time/backward_seconds": 2.0,
        "time/backward_seconds_worst": 2.0,
        "time/backward_seconds_worst_rank": 0.0,
        "time/exchange_seconds": 2.0,
        "time/exchange_seconds_worst": 3.0,
        "time/exchange_seconds_worst_rank": 0.0,
    }
    assert worker_metrics("memory/peak_bytes", [7.0]) == {"memory/peak_bytes": 7.0}
    assert phase_metrics([Totals(0, (0.0,) * 6)]) == {}


class Event:
    """As torch.cuda.Event, on a device whose time passes as it is told."""

    milliseconds = 0.0
    reached = float("inf")
    """The device has done what was queued until then."""

    def record(self) -> None:
        self.at = Event.milliseconds

    def query(self) -> bool:
        return self.at <= Event.reached

    def elapsed_time(self, end: "Event") -> float:
        return end.at - self.at


def test_on_a_gpu_some_steps_are_measured_by_events_and_read_when_the_loop_reads() -> None:
    clock = GpuStepClock(at(*range(1_000)), Event)
    for number in range(2 * GPU_STEPS_PER_MEASUREMENT):
        clock.enter("data")
        for phase, took in (("forward", 10), ("backward", 20), ("exchange", 5), ("optimizer", 3)):
            clock.start_step() if phase == "forward" else clock.enter(phase)
            Event.milliseconds += took if number % GPU_STEPS_PER_MEASUREMENT == 0 else 1_000
        clock.enter("other")
    assert clock.totals().steps == 0  # nothing has waited for the device yet
    clock.read()
    steps = 2 * GPU_STEPS_PER_MEASUREMENT
    data, *on_device, checkpoint = clock.totals().seconds
    assert clock.totals().steps == steps and (data, checkpoint) == (steps, 0)
    assert on_device == pytest.approx([steps * seconds for seconds in (0.01, 0.02, 0.005, 0.003)])


def test_a_phase_that_the_device_has_not_finished_is_read_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = GpuStepClock(at(*range(1_000)), Event)
    monkeypatch.setattr(Event, "milliseconds", 0.0)
    for phase, took in (("forward", 10), ("exchange", 5)):
        clock.start_step() if phase == "forward" else clock.enter(phase)
        Event.milliseconds += took
    monkeypatch.setattr(Event, "reached", 9.0)
    clock.read()
    assert sum(clock.totals().seconds[1:]) == 0
    monkeypatch.setattr(Event, "reached", 12.0)
    clock.read()
    clock.enter("other")
    monkeypatch.setattr(Event, "reached", 100.0)
    clock.read()
    clock.read()
    _, forward, _, exchange, *_ = clock.totals().seconds
    assert (forward, exchange) == pytest.approx((GPU_STEPS_PER_MEASUREMENT * 0.010, GPU_STEPS_PER_MEASUREMENT * 0.005))


def test_workers_meet_every_two_seconds_also_after_a_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    """At two steps a second, that is every fourth step."""
    now = 100.0
    monkeypatch.setattr(step_clock.time, "monotonic", lambda: now)
    clock = StepClock(lambda: now)
    times = PhaseTimes(clock, torch.device("cpu"))
    times.begin(10_000)
    met = []
    for step in range(10_001, 10_020):
        clock.start_step()
        now += 0.5
        met += [step - 10_000] if times.metrics(step, is_last=False) else []
    assert met == [1, 5, 9, 13, 17]
