"""Slower ways in which a process computes, and why it takes them: logged once, and kept for the page of the run."""

import logging

log = logging.getLogger(__name__)

_reasons: dict[str, None] = {}


def note_slower_way(reason: str) -> None:
    """Log the reason, unless this process has noted it."""
    if reason not in _reasons:
        _reasons[reason] = None
        log.warning(reason)


def slower_ways() -> list[str]:
    """The reasons that this process has noted, in order."""
    return list(_reasons)
