"""Shows progress: a tqdm bar on a terminal, and a line every few seconds elsewhere."""

import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from tqdm import tqdm

LINE_SECONDS = 5.0


class _Bar(tqdm):
    monitor_interval = 0  # without tqdm's thread, which redraws late bars: this one is redrawn often enough


class Progress:
    """Shows how far a run is. `line` prints the lines that replace the bar elsewhere, by default to the same stream."""

    def __init__(self, stream: TextIO | None = None, line: Callable[[str], None] | None = None) -> None:
        self._stream = stream or sys.stdout
        self._line = line or self._print
        self.on_terminal = self._stream.isatty() or bool(os.environ.get("LOCKSTEP_TERMINAL"))  # which shows this job's output
        self._bar: _Bar | None = None
        self._printed, self._shown = 0.0, ""

    def show(self, done: int, total: int, text: str) -> None:
        """Redraw the bar, or print `text` if it is new and the last line was LINE_SECONDS ago."""
        if self.on_terminal:
            self._draw(done, total, text)
        elif text != self._shown and time.monotonic() - self._printed >= LINE_SECONDS:
            self._printed, self._shown = time.monotonic(), text
            self._line(text)

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self.clear()
        self._print(line)

    def clear(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _draw(self, done: int, total: int, text: str) -> None:
        if self._bar is None:
            style = {"bar_format": "{bar:24}  {desc}", "ascii": "░█", "dynamic_ncols": True, "leave": False, "position": 0}
            self._bar = _Bar(desc=text, total=total, initial=done, file=self._stream, **style)
        else:
            self._bar.n, self._bar.total = done, total
            self._bar.set_description_str(text)

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
