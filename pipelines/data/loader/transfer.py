"""Copies chunks to a GPU on a separate stream, so that the copy overlaps with the step's kernels."""

import torch

from pipelines.data.loader.chunks import Chunk


class Transfer:
    """A callable that copies a chunk from the host to `device`. On the CPU it returns the chunk itself."""

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
