"""The number of threads that decode at once: chosen by what is measured, on a clock of the test's own."""

import time
from collections.abc import Callable
from threading import Lock, Thread

import pytest

from pipelines.data.loader.pace import Pace

SIZE = 1_000


def decode(pace: Pace, seconds: list[float], rate: Callable[[int], float], windows: int, is_awaited: bool = True) -> None:
    """Decode windows one after another, of which so many threads together decode `rate` a second."""
    for _ in range(windows):
        with pace.turn(SIZE, lambda: is_awaited):
            seconds[0] += 1 / rate(pace.threads)


@pytest.mark.parametrize(
    ("threads", "rate", "expected"),
    [
        (16, lambda count: count, 16),  # each thread more decodes more
        (16, lambda count: min(count, 4), 4),  # four keep the memory busy
        (16, lambda count: 10 / count, 1),  # each one more holds up the others
        (16, lambda count: {16: 3.0, 8: 5.0, 4: 4.0}[count], 8),
        (6, lambda count: min(count, 3), 3),
        (1, lambda count: 1.0, 1),
    ],
)
def test_it_is_the_fewest_threads_that_are_as_fast_as_more(threads: int, rate: Callable[[int], float], expected: int) -> None:
    seconds = [0.0]
    pace = Pace(threads, lambda: seconds[0])
    decode(pace, seconds, rate, 200)
    assert pace.threads == expected
    decode(pace, seconds, lambda count: 1.0, 200)
    assert pace.threads == expected, "it is measured once"


def test_what_is_not_awaited_is_not_measured() -> None:
    """A consumer that is slower than decoding leaves threads idle, which says nothing about them."""
    seconds = [0.0]
    pace = Pace(8, lambda: seconds[0])
    decode(pace, seconds, lambda count: 1.0, 200, is_awaited=False)
    assert pace.threads == 8
    decode(pace, seconds, lambda count: min(count, 2), 200)
    assert pace.threads == 2


def test_no_more_threads_are_in_turn_than_may_be() -> None:
    pace, inside, most, lock = Pace(4), [0], [0], Lock()
    pace.threads = 2

    def decode_windows() -> None:
        for _ in range(50):
            with pace.turn(SIZE, lambda: False):
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                time.sleep(1e-4)
                with lock:
                    inside[0] -= 1

    threads = [Thread(target=decode_windows) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "whoever ends lets the next one in"
    assert most[0] == 2


def test_an_error_ends_its_turn() -> None:
    pace = Pace(1)
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"), pace.turn(SIZE, lambda: True):
            raise ValueError("broken")
    with pace.turn(SIZE, lambda: True):
        pass
