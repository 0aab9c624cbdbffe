"""LightGBM has a logger for each thread, which it sets in the first one alone; in all others it prints to stdout."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.runtime.compat import attribute, is_present

log = logging.getLogger(__name__)


class _DebugLog:
    """Writes all that LightGBM says at level debug; what matters comes as an exception."""

    def info(self, message: str) -> None:
        log.debug(message.strip())

    warning = info


def silence_thread(lightgbm: Any) -> None:
    """Send what LightGBM says in the calling thread to the log."""
    lightgbm.register_logger(_DebugLog())
    if is_present(lightgbm.basic, "_LIB", instead="LightGBM prints its warnings"):
        library = attribute(lightgbm.basic, "_LIB")
        library.LGBM_RegisterLogCallback(library.callback)


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """Discards what the block prints to stdout, of all threads: LightGBM says so in a thread of its own that it listens."""
    sys.stdout.flush()
    stdout = os.dup(1)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
