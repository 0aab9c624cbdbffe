"""The replay check says when a verification is over."""

from types import SimpleNamespace
from typing import Any

from pipelines.checkpoint.digest_log import DigestLog
from pipelines.launch.replay import ReplayCheck
from pipelines.parallel.step import Flags


def test_it_stops_once_there_is_no_more_to_find_out() -> None:
    said: list[bool] = []

    def step(batch: Any, number: int, rate: float, flags: Flags, measured: bool) -> Any:
        said.append(flags.stop)
        return SimpleNamespace(loss_sum=0.5)

    strategy: Any = SimpleNamespace(model=None, mesh=None, clock=None, step=step)
    check = ReplayCheck(strategy, DigestLog(losses={1: 0.5, 2: 0.5}), steps=2)
    for number in range(3):
        check.step([], number, 0.1, Flags())
    assert said == [False, False, True]
    assert (check.found.losses, check.found.loss) == (2, None)
