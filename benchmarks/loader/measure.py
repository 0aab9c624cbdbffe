"""One measurement in its own process. Both environments of benchmarks/loader/against_peers.py use this module.

A script that ends in `run(…)` or `run_peers(…)` takes the name of a measurement and its arguments as JSON, and prints the
result as JSON in its last line. It may use the cores that its parent allows, CORES in number.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Result = dict[str, float | int]
CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Peer:
    """Another loader, as its documentation advises for local files."""

    open: Callable[[str, int, Any], Iterable[Any]]
    """Takes path, rows per batch, and a state or None. Returns the batches."""
    convert: Callable[[str, str, int | None], None] | None = None
    """Takes the folder of our part files, a target, and a number of rows or None for all. Writes the peer's own format, if it needs one."""
    state: Callable[[str, int, int], Any] = lambda path, batch, rows: None
    """Takes path, rows per batch and a number of rows. Returns the documented state to resume from after these rows; None if the
    peer can only read rows and drop them."""


def pace(batches: Iterable[Any], seconds: float) -> Result:
    """Rows per second after the first batch, over one epoch or about `seconds`, whichever ends first."""
    rows, begin = -1, 0.0
    for batch in batches:
        if rows < 0:
            rows, begin = 0, time.perf_counter()
            continue
        rows += rows_in(batch)
        if time.perf_counter() - begin > seconds:
            break
    return {"rows_per_second": rows / (time.perf_counter() - begin), "rows": rows}


def first_batch(open_batches: Callable[[], Iterable[Any]], skip: int = 0) -> Result:
    """Seconds from opening the dataset to the first batch, or to the first one after `skip` rows."""
    started = time.perf_counter()
    for batch in open_batches():
        skip -= rows_in(batch)
        if skip < 0:
            break
    return {"seconds": time.perf_counter() - started}


def rows_in(batch: Any) -> int:
    return len(next(iter(batch.values()))) if isinstance(batch, dict) else len(batch)


def run(*measures: Callable[..., Result]) -> None:
    _, name, arguments = sys.argv
    result = {measure.__name__: measure for measure in measures}[name](**json.loads(arguments))
    print(json.dumps(result), flush=True)


def run_peers(peers: dict[str, Peer]) -> None:
    def convert(peer: str, source: str, target: str, rows: int | None) -> Result:
        started = time.perf_counter()
        Path(target).mkdir(parents=True)
        peers[peer].convert(source, target, rows)
        return {"seconds": time.perf_counter() - started}

    def throughput(peer: str, path: str, batch: int, seconds: float) -> Result:
        return pace(peers[peer].open(path, batch, None), seconds)

    def resume(peer: str, path: str, batch: int, rows: int) -> Result:
        state = peers[peer].state(path, batch, rows) if rows else None
        return first_batch(lambda: peers[peer].open(path, batch, state), 0 if state else rows)

    run(convert, throughput, resume)
