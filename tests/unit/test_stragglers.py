"""A worker that holds the others up is named, and so is what it is slow at; equal workers are not."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import torch
import torch.distributed as dist
from groups import run_group

from pipelines.monitor import worker_monitor
from pipelines.monitor import worker_monitor as worker_watch
from pipelines.monitor.worker_heartbeat import Heartbeat, WorkerBeat, newest_group, parse_beat
from pipelines.monitor.worker_monitor import HangDetector, Stragglers, compare
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.step_clock import StepClock
from pipelines.train.workers import WorkerContext


def comparisons(
    *own_seconds: dict[int, dict[str, float]], ranks: int = 3, shards: dict[int, int] | None = None
) -> Iterator[dict[int, WorkerBeat]]:
    """Beats ten seconds and a hundred steps apart: in each interval `own_seconds` are seconds per step that differ from the usual."""
    usual = {"data": 0.01, "forward": 0.02, "backward": 0.03, "exchange": 0.03, "optimizer": 0.01}
    now = {
        rank: WorkerBeat(
            time=1.0,
            world_size=ranks,
            host=f"host{rank}",
            process=rank,
            shards=(shards or {}).get(rank, 2),
            seconds=dict.fromkeys(usual, 0.0),
        )
        for rank in range(ranks)
    }
    yield now
    for interval in own_seconds:
        for rank, beat in now.items():
            took = usual | interval.get(rank, {})
            seconds = {phase: beat.seconds[phase] + 100 * took[phase] for phase in usual}
            now[rank] = replace(beat, time=beat.time + 10, steps=beat.steps + 100, step=beat.step + 100, seconds=seconds)
        yield dict(now)


def report_lines(beats: Iterator[dict[int, WorkerBeat]]) -> tuple[list[str], list[str]]:
    watch = Stragglers()
    return [line for now in beats for line in watch.poll(now)], watch.named


SLOW_CPU = {1: {"forward": 0.06, "backward": 0.09}}


def test_a_worker_that_is_slow_from_the_start_is_named_after_three_comparisons() -> None:
    lines, named = report_lines(comparisons(SLOW_CPU, SLOW_CPU, SLOW_CPU, SLOW_CPU))
    assert lines == [
        "worker 1 on host1 holds the others up from the start: it is slow at compute, which takes it 0.16 s of a step, and the "
        "others 0.06 s"
    ]
    assert named == ["worker 1 on host1: slow at compute, 2.7 times the others', from the start"]
    assert report_lines(comparisons(SLOW_CPU, SLOW_CPU)) == ([], [])


def test_one_that_becomes_slow_is_named_with_the_step_and_so_is_its_recovery() -> None:
    slow_disk = {2: {"data": 0.2}}
    lines, named = report_lines(comparisons({}, {}, slow_disk, slow_disk, slow_disk, {}, {}))
    assert len(lines) == 2 and lines[0].startswith("worker 2 on host2 holds the others up from step 200: it is slow at data")
    assert lines[1] == "worker 2 is as fast as the others again, at step 700"
    assert [text.rpartition(", ")[2] for text in named] == ["from step 200 to step 700"]
    _, named = report_lines(comparisons({}, {}, *[slow_disk] * 3, {}, {}, *[slow_disk] * 3))
    assert [text.rpartition(", ")[2] for text in named] == ["from step 200 to step 700", "from step 700"], "each time is kept"


@pytest.mark.parametrize(
    "own_seconds",
    [
        [{1: {"forward": 0.5}}, {}, {1: {"forward": 0.5}}, {}],  # pauses
        [SLOW_CPU, SLOW_CPU, {0: {"forward": 0.5}}, SLOW_CPU, SLOW_CPU],  # now this one, now that one
        [{1: {"exchange": 1.0}}] * 4,  # which is waiting for others
        [{1: {"forward": 0.035}}] * 4,  # 1.2 times
        [{rank: {"data": 0.5} for rank in range(3)}] * 4,  # all are
    ],
)
def test_no_alarm_without_a_straggler(own_seconds: list[dict[int, dict[str, float]]]) -> None:
    assert report_lines(comparisons(*own_seconds)) == ([], [])


def test_a_worker_with_more_shards_is_not_slow() -> None:
    twice = {0: {"data": 0.02, "forward": 0.04, "backward": 0.06}}
    assert report_lines(comparisons(*[twice] * 4, ranks=2, shards={0: 2, 1: 1})) == ([], [])
    assert report_lines(comparisons(*[twice] * 4, ranks=2, shards={0: 2, 1: 2}))[1]


def test_steps_too_few_or_a_new_group_are_not_compared() -> None:
    beats = list(comparisons(SLOW_CPU, SLOW_CPU, SLOW_CPU))
    watch = Stragglers()
    early = [replace(beat, time=beat.time / 10) for beat in beats[1].values()]
    assert [watch.poll(beats[0]), watch.poll(dict(enumerate(early)))] == [[], []]
    restarted = {rank: replace(beat, process=beat.process + 100) for rank, beat in beats[2].items()}
    assert [watch.poll(now) for now in (beats[1], restarted, beats[3])] == [[], [], []]
    assert compare(beats[0], beats[1]) is not None


def test_beats_of_an_earlier_and_larger_group_do_not_count() -> None:
    old, new = WorkerBeat(time=1.0, world_size=3), WorkerBeat(time=9.0, world_size=2)
    assert newest_group({0: new, 1: new, 2: old}) == {0: new, 1: new}
    assert newest_group({0: new, 1: old}) == {0: new} and newest_group({}) == {}
    assert parse_beat({"step": 3, "of another version": 1}) == WorkerBeat(step=3)


def test_a_standstill_names_the_worker_that_does_not_come() -> None:
    clock = [0.0]
    watch = HangDetector(lambda: clock[0])
    waiting = WorkerBeat(step=1_233, steps=9, phase="exchange", host="here")
    busy = WorkerBeat(step=1_233, steps=9, phase="backward", host="there", place="dawdle (net.py:7)")
    lines = []
    for second in range(0, 70, 5):
        clock[0] = float(second)
        beats = {0: waiting, 1: waiting, 2: busy}
        lines.append(watch.poll({rank: replace(beat, beat=second) for rank, beat in beats.items()}))
    assert [line for line in lines if line] == [
        "no worker has got any further for 30 s: worker 2 on there is in backward of step 1,234, in dawdle (net.py:7); "
        "the others wait, in exchange of step 1,234"
    ]


def test_a_stopped_worker_and_a_dead_network_are_told_apart() -> None:
    def at_the_end(silent: int | None) -> str:
        clock, line = [0.0], ""
        watch = HangDetector(lambda: clock[0])
        for second in range(0, 35, 5):
            clock[0] = float(second)
            line = line or watch.poll({rank: WorkerBeat(phase="exchange", beat=0 if rank == silent else second) for rank in range(2)})
        return line

    assert "worker 1 has been silent: its process is stopped, or its machine unreachable" in at_the_end(1)
    assert "each waits for the others, so the network between them does not work" in at_the_end(None)


def test_nobody_who_computes_long_stands_still() -> None:
    clock = [0.0]
    watch = HangDetector(lambda: clock[0])
    for second in range(0, 100, 5):
        clock[0] = float(second)
        assert watch.poll({rank: WorkerBeat(phase="forward", beat=second) for rank in range(2)}) == ""


def steps(context: WorkerContext, folder: str) -> None:
    """A synchronous training in little, until the file `end` is there."""
    clock, run = StepClock(), RunDirectory(folder)
    values = torch.ones(300, 300)
    with Heartbeat(run, context, 4.0) as heartbeat:
        heartbeat.watch(clock, lambda: 1)
        ends = torch.zeros(1)
        while not ends:
            heartbeat.step += 1
            clock.start_step()
            for _ in range(10):
                values @ values
            ends = torch.tensor([float(context.rank == 0 and run.has("end"))])
            clock.enter("exchange")
            dist.all_reduce(ends)


def half_stopped(process: int, seconds: float, finished: Event) -> None:
    """Stop the process for nine tenths of the time."""
    while not finished.wait(0.1 * seconds):
        os.kill(process, signal.SIGSTOP)
        time.sleep(0.9 * seconds)
        os.kill(process, signal.SIGCONT)


@pytest.mark.slow
def test_a_worker_that_is_stopped_for_most_of_the_time_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_monitor, "COMPARE_SECONDS", 0.7)
    monkeypatch.setattr(worker_watch, "POLL_SECONDS", {True: 0.1})
    run, lines, tags, named = RunDirectory(str(tmp_path / "run")), list[str](), dict[str, Any](), Event()

    def tell(line: str) -> None:
        lines.append(line)
        named.set()

    def drive() -> None:
        watch = worker_watch.WorkerMonitor(run, tell, tags.update)
        limit = time.monotonic() + 60
        slowing: Thread | None = None
        while time.monotonic() < limit and not named.is_set():
            watch.poll()
            beats = worker_watch.read_beats(run)
            if not slowing and len(beats) == 2 and min(beat.steps for beat in beats.values()) > 0:
                slowing = Thread(target=half_stopped, args=(beats[1].process, 0.1, named))
                slowing.start()
            time.sleep(0.05)
        named.set()
        if slowing:
            slowing.join()
        run.put("end", b"")

    (tmp_path / "run").mkdir()
    driver = Thread(target=drive)
    driver.start()
    run_group(2, tmp_path / "group", steps, str(tmp_path / "run"))
    driver.join()
    assert [line.partition(" on ")[0] for line in lines] == ["worker 1"], lines
    assert "slow at compute" in lines[0] and "slow at compute" in tags["stragglers"], (lines, tags)


def test_nothing_hangs_while_the_group_after_a_death_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_watch, "POLL_SECONDS", {True: 0.0})
    run, lines, now = RunDirectory(str(tmp_path)), list[str](), [0.0]
    watch = worker_watch.WorkerMonitor(run, lines.append, lambda tags: None)
    watch._hang_detector = HangDetector(lambda: now[0])  # the clock of this test

    def poll(process: int, seconds: float) -> None:
        beat = {"beat": 7, "time": 5.0, "world_size": 1, "host": "a", "process": process, "steps": 3, "step": 3, "waits": True}
        run.put_json("heartbeats/0.json", beat)
        now[0] += seconds
        watch.poll()

    poll(process=11, seconds=0)
    run.put_json("deaths.json", {"time": 1_000.0, "workers": {"1": "killed"}, "cut_off": []})
    poll(process=11, seconds=60)
    poll(process=11, seconds=60)
    assert lines == []
    poll(process=12, seconds=1)
    poll(process=12, seconds=60)
    assert len(lines) == 1 and "no worker has got any further for 60 s" in lines[0]


def test_what_fails_is_logged_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(worker_watch, "POLL_SECONDS", {True: 0.0})
    (tmp_path / "heartbeats").write_text("not a folder")
    worker_watch.WorkerMonitor(RunDirectory(str(tmp_path)), print, print).poll()
    assert "heartbeats" in caplog.text
