"""MosaicML Streaming, on its own format."""

from typing import Any

from benchmarks.loader.peers import no_torchvision  # noqa: F401 (before the next import)

# isort: split
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

from benchmarks.loader.measure import CORES, Peer, run_peers
from benchmarks.loader.rows import arrays, iterate_rows, row_groups

WORKERS = {} if CORES == 1 else {"num_workers": CORES, "multiprocessing_context": "spawn"}


def batches(path: str, batch: int, state: dict[str, Any] | None) -> StreamingDataLoader:
    clean_stale_shared_memory()
    loader = StreamingDataLoader(StreamingDataset(local=path, shuffle=True, batch_size=batch), batch_size=batch, **WORKERS)
    if state is not None:
        loader.load_state_dict(state)
    return loader


def state(path: str, batch: int, rows: int) -> dict[str, Any]:
    return batches(path, batch, None).dataset.state_dict(rows, from_beginning=True)


def to_shards(source: str, target: str, rows: int | None) -> None:
    places = row_groups(source, rows)
    columns = {
        name: "uint8" if name == "label" else f"ndarray:{values.dtype}:{','.join(map(str, values.shape[1:]))}"
        for name, values in arrays(*places[0]).items()
    }
    with MDSWriter(out=target, columns=columns) as writer:
        for place in places:
            for row in iterate_rows(place):
                writer.write(row)


if __name__ == "__main__":
    run_peers({"MosaicML Streaming": Peer(batches, to_shards, state)})
