"""The peak of resident memory in each phase of a step, which Linux counts anew when it is asked to."""

from contextlib import suppress
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


class PeaksByPhase:
    """`end` is called at the end of each phase."""

    def __init__(self) -> None:
        self.bytes: dict[str, int] = {}
        """By phase: the largest peak so far; empty on systems that do not count it."""
        _reset()

    def end(self, phase: str) -> None:
        if peak := _peak():
            self.bytes[phase] = max(peak, self.bytes.get(phase, 0))
            _reset()


def _peak() -> int:
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _reset() -> None:
    with suppress(OSError):  # then every phase has the peak so far
        _CLEAR.write_text(_RESET_PEAK)
