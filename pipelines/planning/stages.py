"""Pipelines: the layers of each worker, the time that workers wait, and the microbatches that they hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pipelines.planning.layouts import Layout, Schedule
from pipelines.planning.model_costs import Layer, ModelCosts


@dataclass(frozen=True)
class Share:
    """Layers of a worker: kinds of layers, and how many of each."""

    layers: tuple[tuple[Layer, float], ...]

    @property
    def parameters(self) -> float:
        return sum(count * layer.parameters for layer, count in self.layers)

    @property
    def largest_unit(self) -> float:
        """Parameters of the largest layer, which is gathered as one."""
        return max(layer.parameters for layer, _ in self.layers)


@lru_cache(maxsize=4096)
def worker_shares(model: ModelCosts, pipeline: int, stages_per_worker: int, is_folded: bool) -> tuple[Share, ...]:
    """The layers of each worker of a pipeline. Stages have equally many blocks, or earlier ones have one more; the first has the input,
    the last the output, and with a folded schedule (ZBV) both are on the first worker."""
    stages = pipeline * stages_per_worker
    if stages == 1:
        return (Share(tuple((layer, float(layer.count)) for layer in model.layers)),)
    blocks = [(layer, layer.count) for layer in model.layers if layer.role == "block"]
    total = sum(count for _, count in blocks)
    shares: list[dict[Layer, float]] = [{} for _ in range(pipeline)]
    start = 0
    for stage in range(stages):
        size = total // stages + (stage < total % stages)
        worker = stage % pipeline if not is_folded or stage < pipeline else stages - 1 - stage
        _add_blocks(shares[worker], blocks, start, size)
        start += size
        for layer in model.of_role("input") if stage == 0 else model.of_role("output") if stage == stages - 1 else ():
            shares[worker][layer] = layer.count
    return tuple(Share(tuple(share.items())) for share in shares)


def _add_blocks(share: dict[Layer, float], blocks: Sequence[tuple[Layer, int]], start: int, size: int) -> None:
    """Add the blocks `start` to `start + size` of the sequence to a worker's."""
    position = 0
    for layer, count in blocks:
        overlap = min(start + size, position + count) - max(start, position)
        if overlap > 0:
            share[layer] = share.get(layer, 0) + overlap
        position += count


def shares(model: ModelCosts, layout: Layout) -> tuple[Share, ...]:
    """The layers of each worker of a pipeline, or of all of them."""
    return worker_shares(model, layout.pipeline, layout.stages_per_worker, layout.schedule == "ZBVZeroBubble" and layout.pipeline > 1)


def bubble_seconds(
    schedule: Schedule, workers: int, forward: float, backward: float, weights: float, stages_per_worker: int = 2
) -> float:
    """Seconds of a pass in which a worker waits, with so many workers, and a microbatch that takes all layers of a worker `forward`,
    `backward` for gradients of activations and `weights` for those of parameters.

    1F1B waits for (p - 1) microbatches (Narayanan et al. 2019), interleaved stages v times less, with v of them per worker (Narayanan et al. 2021). The
    zero-bubble schedules compute gradients of parameters meanwhile: ZB-H1 waits for F + B - W, ZB-V for F + B - 2 W (Qi et al. 2023)."""
    waits = {
        "1F1B": forward + backward + weights,
        "Interleaved1F1B": (forward + backward + weights) / stages_per_worker,
        "InterleavedZeroBubble": max(0.0, forward + backward - weights) / stages_per_worker,
        "ZBVZeroBubble": max(0.0, forward + backward - 2 * weights),
    }
    return (workers - 1) * waits[schedule]


def microbatches_held(layout: Layout) -> float:
    """Microbatches whose activations the first worker of a pipeline holds, of all of its layers: `pipeline` with 1F1B and ZB-V; with v
    stages per worker, those of 2 (p - 1) + (v - 1) p + 1 stages (Narayanan et al. 2021)."""
    if layout.pipeline == 1:
        return 1.0
    if layout.schedule in ("1F1B", "ZBVZeroBubble"):
        return min(layout.parts, layout.pipeline)
    count = layout.stages_per_worker
    return min(layout.parts, ((count + 1) * layout.pipeline - 1) / count)
