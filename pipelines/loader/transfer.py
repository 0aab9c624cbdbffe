"""Copies chunks to a GPU on a stream of their own, so that the copy runs beside the step's kernels."""

import torch

from pipelines.loader.chunks import Chunk


class Transfer:
    """Callable: a chunk on the host becomes a chunk on `device`. On the CPU it stays what it is."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __call__(self, chunk: Chunk) -> Chunk:
        if self._stream is None:
            return chunk
        # A chunk gathered on the GPU was gathered on the default stream: the event below must come after it.
        self._stream.wait_stream(torch.cuda.default_stream(self._device))
        with torch.cuda.stream(self._stream):
            values = [block.to(self._device, non_blocking=True) for block in chunk.values]
            return Chunk(chunk.blocks, values, self._stream.record_event())
