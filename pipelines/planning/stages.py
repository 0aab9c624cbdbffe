"""Pipelines: the layers of each worker, the time that workers wait, and the microbatches that they hold."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from pipelines.planning.layouts import ParallelLayout, Schedule
from pipelines.planning.model_costs import Layer, ModelCosts


@dataclass(frozen=True)
class WorkerLayers:
    """Layers of a worker: kinds of layers, and how many of each."""

    layers: tuple[tuple[Layer, int], ...]

    @cached_property
    def parameters(self) -> float:
        return sum(count * layer.parameters for layer, count in self.layers)

    @cached_property
    def blocks(self) -> tuple[tuple[Layer, int], ...]:
        """Layers that are sharded as units of their own. A single layer is one unit with all the rest."""
        return tuple(entry for entry in self.layers if entry[0].role == "block") if sum(count for _, count in self.layers) > 1 else ()

    @cached_property
    def largest_unit(self) -> float:
        """Parameters of the largest layer, which is gathered as one."""
        return max(layer.parameters for layer, _ in self.layers)


def worker_shares(model: ModelCosts, layout: ParallelLayout) -> tuple[WorkerLayers, ...]:
    """The layers of each worker of a pipeline, without repetitions of equal ones, or all layers.

    Stages have equally many blocks, or earlier ones have one more. The first has the input, the last the output; with ZBV both are on the
    first worker."""
    is_folded = layout.schedule == "ZBVZeroBubble" and layout.pipeline > 1
    return _divide_layers(model, layout.pipeline, layout.stages_per_worker, is_folded)


@lru_cache(maxsize=1024)
def _divide_layers(model: ModelCosts, workers: int, stages_per_worker: int, is_folded: bool) -> tuple[WorkerLayers, ...]:
    count = workers * stages_per_worker
    if count == 1:
        return (WorkerLayers(tuple((layer, layer.count) for layer in model.layers)),)
    sizes = [model.blocks // count + (stage < model.blocks % count) for stage in range(count)]
    stages_of_worker: list[list[int]] = [[] for _ in range(workers)]
    for stage in range(count):
        is_on_way_back = is_folded and stage >= workers
        stages_of_worker[count - 1 - stage if is_on_way_back else stage % workers].append(stage)
    shares: dict[tuple[int, ...], WorkerLayers] = {}
    for stages in stages_of_worker:
        counts = [0] * len(model.layers)
        for stage in stages:
            _count_layers(counts, model, sum(sizes[:stage]), sizes[stage], stage == 0, stage == count - 1)
        layers = tuple((layer, number) for layer, number in zip(model.layers, counts, strict=True) if number)
        shares.setdefault(tuple(counts), WorkerLayers(layers))
    return tuple(shares.values())


def _count_layers(counts: list[int], model: ModelCosts, start: int, size: int, is_first: bool, is_last: bool) -> None:
    """Add a stage's layers to a worker's: `size` blocks from the block `start` on, and those at the ends."""
    position = 0
    for number, layer in enumerate(model.layers):
        if layer.role == "block":
            counts[number] += max(0, min(start + size, position + layer.count) - max(start, position))
            position += layer.count
        elif is_first if layer.role == "input" else is_last:
            counts[number] += layer.count


def bubble_seconds(schedule: Schedule, workers: int, forward: float, backward: float, weights: float, stages_per_worker: int = 2) -> float:
    """Seconds of a pass in which a worker waits, with so many workers, and a microbatch that takes all layers of a worker `forward`,
    `backward` for gradients of activations and `weights` for those of parameters.

    1F1B waits for (p - 1) microbatches (Narayanan et al. 2019), interleaved stages v times less, with v of them per worker (Narayanan et
    al. 2021). The zero-bubble schedules compute gradients of parameters meanwhile: ZB-H1 waits for F + B - W, ZB-V for F + B - 2 W (Qi et
    al. 2023)."""
    waits = {
        "1F1B": forward + backward + weights,
        "Interleaved1F1B": (forward + backward + weights) / stages_per_worker,
        "InterleavedZeroBubble": max(0.0, forward + backward - weights) / stages_per_worker,
        "ZBVZeroBubble": max(0.0, forward + backward - 2 * weights),
    }
    return (workers - 1) * waits[schedule]


def microbatches_held(layout: ParallelLayout) -> float:
    """Microbatches whose activations the first worker of a pipeline holds, of all of its layers: `pipeline` with 1F1B and ZB-V; with v
    stages per worker, those of 2 (p - 1) + (v - 1) p + 1 stages (Narayanan et al. 2021)."""
    if layout.pipeline == 1:
        return 1.0
    if layout.schedule in ("1F1B", "ZBVZeroBubble"):
        return min(layout.parts, layout.pipeline)
    count = layout.stages_per_worker
    return min(layout.parts, ((count + 1) * layout.pipeline - 1) / count)
