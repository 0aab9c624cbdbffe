"""Progress of a command: a tqdm bar on a terminal or in a notebook; elsewhere lines, the first after 10 s, then at growing intervals.

`speak("quiet")` leaves out everything but warnings and errors, and `speak("json")` turns each piece into a line with one JSON object,
for machines. A process speaks in one way, since it has one terminal.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, TextIO

from tqdm import tqdm

LINE_SECONDS = 5.0
"""Between two lines of JSON."""
FIRST_LINE_SECONDS, LONGEST_SECONDS = 10.0, 60.0
"""Of text, the time before the first line, and the longest between two, which doubles until then. Small jobs have none."""
Way = Literal["text", "quiet", "json"]
_way: list[Way] = ["text"]


def speak(way: Way) -> None:
    """Choose how this process tells of its progress."""
    _way[0] = way


def is_json() -> bool:
    return _way[0] == "json"


def tell(event: str, text: str, /, **values: Any) -> None:
    """Print a line of text to standard output, or its values as JSON, or nothing."""
    if _way[0] == "text":
        print(text, flush=True)
    elif _way[0] == "json":
        print(as_json(event, **values), flush=True)


def as_json(event: str, /, **values: Any) -> str:
    """One line: the event, the seconds since 1970, and the values."""
    return json.dumps({"event": event, "time": round(time.time(), 3), **values}, default=str)


class JsonLines(logging.Formatter):
    """A log's records as `tell` prints events."""

    def format(self, record: logging.LogRecord) -> str:
        return as_json("log", level=record.levelname.lower(), text=record.getMessage())


class _Bar(tqdm):
    monitor_interval = 0
    """Without tqdm's thread, which redraws late bars: this one is redrawn often enough."""


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook that can show a bar. Other libraries import ipykernel too."""
    kernel: Any = getattr(sys.modules.get("ipykernel.kernelapp"), "IPKernelApp", None)  # not there while a thread imports it
    return kernel is not None and kernel.initialized() and find_spec("ipywidgets") is not None


class Progress:
    """Shows how far a run is. `line` prints the lines that replace the bar elsewhere, by default to the same stream."""

    def __init__(self, stream: TextIO | None = None, line: Callable[[str], None] | None = None) -> None:
        self._stream = stream or sys.stdout
        self._line = line or self._print
        is_terminal = self._stream.isatty() or bool(os.environ.get("LOCKSTEP_TERMINAL"))  # which shows this job's output
        self._in_notebook = is_notebook() and self._stream in (sys.stdout, sys.stderr)
        self.on_terminal = (is_terminal or self._in_notebook) and _way[0] == "text"
        self._bar: tqdm | None = None
        self._interval, self._due, self._last_text = FIRST_LINE_SECONDS, 0.0, ""

    def show(self, finished: int, total: int, text: str, **values: Any) -> None:
        """Redraw the bar, or print `text`, or the values as JSON, if it is new and due."""
        if self.on_terminal:
            self._draw(finished, total, text)
        elif _way[0] != "quiet" and text != self._last_text and self._is_due():
            self._last_text = text
            if _way[0] == "json":
                tell("progress", text, done=finished, total=total, **values)
            else:
                self._line(text)

    def _is_due(self) -> bool:
        """Whether a line is due, and if so, when the next one will be. Of text, the time begins with the first call."""
        now = time.monotonic()
        if not self._due and _way[0] == "text":
            self._due = now + self._interval
        if now < self._due:
            return False
        self._interval = LINE_SECONDS if _way[0] == "json" else min(2 * self._interval, LONGEST_SECONDS)
        self._due = now + self._interval
        return True

    def say(self, line: str, event: str = "message", **values: Any) -> None:
        """Print a line that stays; as JSON, its values, or the line itself if there are none."""
        self.clear()
        if _way[0] == "text":
            self._print(line)
        else:
            tell(event, line, **(values or {"text": line}))

    def clear(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _draw(self, finished: int, total: int, text: str) -> None:
        if self._bar is None and self._in_notebook:
            notebook_bar = import_module("tqdm.notebook").tqdm_notebook  # which imports ipywidgets
            self._bar = notebook_bar(desc=text, total=total, initial=finished, bar_format="{bar}{desc}", leave=False)
        elif self._bar is None:
            style = {"bar_format": "{bar:24}  {desc}", "ascii": "░█", "dynamic_ncols": True, "leave": False, "position": 0}
            self._bar = _Bar(desc=text, total=total, initial=finished, file=self._stream, **style)
        else:
            if self._in_notebook and total != self._bar.total:
                self._bar.reset(total)
            self._bar.n, self._bar.total = finished, total
            self._bar.set_description_str(text)

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
