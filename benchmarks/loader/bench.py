"""The peers, and the rows that all loaders are measured on, which are written and converted when first needed."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.loader.processes import measure
from benchmarks.loader.rows import KINDS

ALL_CORES = len(os.sched_getaffinity(0))
PEERS = {
    "Ray Data": "peers.ray_data",
    "Hugging Face, streaming": "peers.hugging_face",
    "Hugging Face, map-style": "peers.hugging_face",
    "MosaicML Streaming": "peers.mosaicml",
    "LitData": "peers.lit_data",
    "LitData, Parquet": "peers.lit_data",
}
PARQUET = ("Ray Data", "Hugging Face, streaming", "Hugging Face, map-style", "LitData, Parquet")
"""Peers that read plain Parquet or convert from it: our own files if those contain scalars, else lists."""
DIRECTLY = PARQUET[:2]
ROW_BY_ROW = ("MosaicML Streaming", "LitData")
lockstep = partial(measure, "ours", limit_seconds=250)  # a busy machine takes minutes to start a process; only peers hang


class Bench:
    """Rows in a temporary folder, and their conversions for peers."""

    def __init__(self, folder: str, small: bool, peers: list[str]) -> None:
        self.folder, self.small, self.peers = folder, small, peers
        self._converted: dict[tuple[str, str], tuple[str, float | None]] = {}

    def rows(self, kind: str) -> int:
        return KINDS[kind].small_rows if self.small else KINDS[kind].rows

    def seconds(self, kind: str) -> float:
        """How long a peer's throughput is measured."""
        return 1 if self.small else 4 if kind == "narrow" else 3

    def data(self, kind: str, rows: int, row_group_bytes: int = 0) -> str:
        row_group_bytes = row_group_bytes or KINDS[kind].row_group_bytes
        folder = f"{self.folder}/{kind}-{rows}-{row_group_bytes}".replace(" ", "-")
        if not Path(folder).exists():
            lockstep("write", cores=ALL_CORES, kind=kind, folder=folder, rows=rows, row_group_bytes=row_group_bytes)
        return folder

    def convert(self, peer: str, kind: str) -> tuple[str, float | None]:
        """The folder that the peer reads, and the seconds that its conversion took."""
        source, took = self.data(kind, self.rows(kind)), None
        if kind != "narrow" and peer in PARQUET:
            source, took = self._convert_once(
                "lists", kind, lambda target: lockstep("write_lists", cores=ALL_CORES, source=source, target=target)
            )
        if peer in DIRECTLY:
            return source, took
        rows = self.rows(kind) // 10 if kind == "narrow" and peer in ROW_BY_ROW else None
        convert = partial(measure, PEERS[peer], "convert", cores=ALL_CORES, peer=peer, source=source, rows=rows)
        return self._convert_once(peer, kind, lambda target: convert(target=target))

    def _convert_once(self, name: str, kind: str, convert: Callable[[str], dict[str, Any]]) -> tuple[str, float | None]:
        if (name, kind) not in self._converted:
            target = f"{self.folder}/converted-{len(self._converted)}"
            self._converted[name, kind] = target, convert(target).get("seconds")
        return self._converted[name, kind]
