"""Where LightGBM's machines meet: each listens on a port until all are connected."""

import os
import socket
from collections.abc import Sequence
from math import ceil
from typing import Any

from pipelines.train.reduce.agreement import all_gather_object


def find_places(count: int) -> list[str]:
    """Host and port of every machine, by worker. Collective."""
    host = _own_address()
    listeners = [socket.socket() for _ in range(count)]
    try:
        for listener in listeners:
            listener.bind(("", 0))
        places = [(host, listener.getsockname()[1]) for listener in listeners]
        every = [place for places_of_worker in all_gather_object(places) for place in places_of_worker]
    finally:  # once all have a port, so that none is given twice
        for listener in listeners:
            listener.close()
    is_local = len({host for host, _ in every}) == 1
    return [f"{'127.0.0.1' if is_local else host}:{port}" for host, port in every]


def _own_address() -> str:
    """The address of this machine towards that of the first worker."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((os.environ.get("MASTER_ADDR", "127.0.0.1"), 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def network_parameters(places: Sequence[str], rank: int, timeout_seconds: float) -> dict[str, Any]:
    """LightGBM's parameters of the machine with this rank, among those at `places`."""
    return {
        "tree_learner": "data",
        "num_machines": len(places),
        "machines": ",".join(places),
        "local_listen_port": int(places[rank].rpartition(":")[2]),
        "pre_partition": True,
        "time_out": ceil(timeout_seconds / 60),
    }
