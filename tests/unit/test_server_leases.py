"""Who computes which microbatch of asynchronous parameter servers: every one, once; slow and stopped workers delay nobody."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.strategies.parameter_server.watermarks import APART, OVERDUE_TIMES, Leases, Watermarks

SHARDS, STEPS = 8, 12


class Simulated:
    """Workers of different speed, on a clock of its own. A microbatch takes a worker so many seconds; None for one that is stopped."""

    def __init__(self, seconds: list[float | None], staleness: int | None = None) -> None:
        self.seconds, self.marks, self.leases, self.now = seconds, Watermarks([0] * SHARDS), Leases(staleness), 0.0
        self.busy: dict[int, tuple[float, tuple[int, int]]] = {}
        self.computed: dict[int, list[tuple[int, int]]] = {worker: [] for worker in range(len(seconds))}
        self.farthest = 0

    def run(self, steps: int = STEPS) -> float:
        """All microbatches of so many steps; returns the seconds that they took."""
        while self.marks.lowest < steps:
            self.hand_out(steps)
            worker, (ends, shard_and_step) = min(self.busy.items(), key=lambda item: item[1][0])
            if ends == float("inf"):
                self.now += 1.0  # all wait: a server is asked again every now and then
                continue
            self.now = ends
            del self.busy[worker]
            self.marks.add(*shard_and_step) if not self.marks.has(*shard_and_step) else None
            self.computed[worker].append(shard_and_step)
        return self.now

    def hand_out(self, steps: int) -> None:
        for worker in set(self.computed) - set(self.busy):
            if (microbatch := self.leases.take(worker, self.marks, [steps] * SHARDS, self.now)) is not None:
                seconds = self.seconds[worker]
                self.busy[worker] = (float("inf") if seconds is None else self.now + seconds, microbatch)
                self.farthest = max(self.farthest, microbatch[1] - self.marks.lowest)

    def times_computed(self) -> Counter[tuple[int, int]]:
        return Counter(microbatch for computed in self.computed.values() for microbatch in computed)


EVERY = {(shard, step) for shard in range(SHARDS) for step in range(STEPS)}


@pytest.mark.parametrize("staleness", [None, 4, 2])
def test_a_slow_worker_takes_fewer_microbatches_and_delays_nobody(staleness: int | None) -> None:
    """Four workers, one at a quarter of its speed, could do 3.25 microbatches a second."""
    simulated = Simulated([1.0, 1.01, 1.02, 4.0], staleness)
    seconds = simulated.run(40)
    assert seconds < 1.05 * 40 * SHARDS / 3.25 + 4.0
    assert set(simulated.times_computed().values()) == {1}
    assert len(simulated.computed[3]) == pytest.approx(40 * SHARDS / 3.25 / 4, rel=0.1)
    if staleness is not None:
        assert simulated.farthest <= staleness


def test_as_many_workers_as_shards_need_not_wait_for_a_slow_one_either() -> None:
    simulated = Simulated([1.0] * (SHARDS - 1) + [4.0])
    assert simulated.run(40) < 1.05 * 40 * SHARDS / 7.25 + 4.0


@pytest.mark.parametrize("staleness", [None, 2])
def test_the_microbatch_of_a_stopped_worker_is_computed_by_another(staleness: int | None) -> None:
    simulated = Simulated([1.0, 1.0, None], staleness)
    assert simulated.run() < STEPS * SHARDS / 2 + OVERDUE_TIMES + 2
    assert set(simulated.times_computed()) == EVERY


def test_a_worker_reads_on_in_its_shards() -> None:
    simulated = Simulated([1.0, 1.01, 1.02, 4.0])
    simulated.run(200)
    for computed in simulated.computed.values():
        last: dict[int, int] = {}
        began_anew = 0
        for shard, step in computed:
            began_anew += not 0 < step - last.get(shard, -99) <= APART
            last[shard] = step
        assert began_anew <= max(4, len(computed) / 8)
    steps = [step for _, step in simulated.computed[0]]
    assert all(later >= step - 2 * APART for step, later in pairwise(steps))


def test_a_stopped_worker_holds_nobody_up_for_ever_before_a_microbatch_has_been_timed() -> None:
    """As when a server has restarted, and all but one of its workers have died or stopped."""
    marks, leases = Watermarks([0] * SHARDS), Leases(0)
    for worker in range(SHARDS):
        leases.take(worker, marks, [STEPS] * SHARDS, 0.0)
    assert leases.take(SHARDS, marks, [STEPS] * SHARDS, 59.0) is None
    assert leases.take(SHARDS, marks, [STEPS] * SHARDS, 61.0) == (0, 0)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_microbatch_is_handed_out_whoever_dies_or_stops(data: st.DataObject) -> None:
    """Workers finish in any order, die, or stop for long; the server restarts without its leases; it is halted and resumed."""
    staleness = data.draw(st.sampled_from([None, 0, 1, 3]))
    marks, leases, now = Watermarks([0] * SHARDS), Leases(staleness), 0.0
    holds: dict[int, tuple[int, int]] = {}
    for _ in range(40):
        now += data.draw(st.sampled_from([0.01, 0.5, 30.0]))
        event = data.draw(st.sampled_from(["take", "take", "push", "push", "die", "restart"]))
        worker = data.draw(st.integers(0, 2))
        if event == "take" and worker not in holds:
            microbatch = leases.take(worker, marks, [STEPS] * SHARDS, now)
            if microbatch is not None:
                assert not marks.has(*microbatch) and (staleness is None or microbatch[1] <= marks.lowest + staleness)
                holds[worker] = microbatch
        elif event == "push" and worker in holds:
            shard_and_step = holds.pop(worker)
            marks.add(*shard_and_step) if not marks.has(*shard_and_step) else None
        elif event == "die":
            holds.pop(worker, None)
        elif event == "restart":
            leases = Leases(staleness)
    halted = data.draw(st.booleans())
    limits = marks.without_gaps() if halted else [STEPS] * SHARDS
    applied = marks.applied
    while any(step < limit for step, limit in zip(marks.next_steps, limits, strict=True)):
        microbatch = leases.take(0, marks, limits, now)
        if microbatch is None:
            now += 1e4  # the leases of others end
            microbatch = leases.take(0, marks, limits, now)
        assert microbatch is not None
        marks.add(*microbatch)
        applied += 1
        assert marks.applied == applied
    assert marks.next_steps == limits and not any(marks.early)
