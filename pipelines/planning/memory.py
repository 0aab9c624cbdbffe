"""Bytes of a worker's memory: parameters, gradients, optimizer state, gathered parameters, activations, and what the allocator loses."""

from dataclasses import dataclass

from pipelines.planning.hardware import BYTES, Hardware
from pipelines.planning.layouts import ParallelLayout
from pipelines.planning.model_costs import Layer, ModelCosts, convert_precision
from pipelines.planning.stages import WorkerLayers, microbatches_held, worker_shares

OPTIMIZER_BYTES = 8
"""Of AdamW, per parameter: two moments in fp32."""
FRAGMENTS = 0.08
"""What torch's caching allocator holds beyond tensors that live, as a part of activations and buffers: assumed."""
CONTEXT_BYTES = 1.5e9
"""Of the CUDA context, kernels and NCCL's buffers, which torch's figures do not count: assumed."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of the worker that needs most. Parts that `offload` keeps in the machine's memory are 0."""

    parameters: float
    gradients: float
    optimizer: float
    gathered: float
    """Parameters in the precision of computing, and buffers of collectives."""
    activations: float
    working: float
    """Of the layer that is being computed."""
    fragments: float

    @property
    def total(self) -> float:
        """Bytes, as torch counts reserved memory."""
        state = self.parameters + self.gradients + self.optimizer
        return state + self.gathered + self.activations + self.working + self.fragments

    @property
    def gib(self) -> float:
        return self.total / 2**30


def usable_bytes(hardware: Hardware) -> float:
    """Bytes of a device that torch can reserve; of a small one, a twentieth is kept free."""
    return hardware.memory_bytes - min(CONTEXT_BYTES, hardware.memory_bytes / 20)


def estimate_memory(model: ModelCosts, layout: ParallelLayout) -> MemoryEstimate:
    """The memory of the worker that needs most: in a pipeline, the first holds most microbatches, and the last has the output."""
    converted = convert_precision(model, BYTES[layout.precision])
    in_flight = microbatches_held(layout)
    shares = worker_shares(converted, layout)
    # Later workers hold fewer microbatches, and the last one's outputs need most beside them.
    last = max(1.0, in_flight - layout.pipeline + 1)
    estimates = [_worker_memory(share, layout, last if share is shares[-1] and len(shares) > 1 else in_flight) for share in shares]
    return max(estimates, key=lambda estimate: estimate.total)


def _worker_memory(share: WorkerLayers, layout: ParallelLayout, in_flight: float) -> MemoryEstimate:
    parameters = share.parameters / layout.tensor
    state = 0.0 if layout.offload else parameters / layout.parameter_shards
    gathered, gradients = _parameter_copies(share, layout)
    rows = layout.microbatch / layout.parts / layout.context
    activations = sum(count * _kept_bytes(layer, layout) for layer, count in share.layers) * rows * in_flight
    if layout.checkpointing != "full" and not layout.ring_attention:  # keys and values of the other workers' positions are kept too
        key_values = sum(count * layer.key_value_bytes for layer, count in share.layers) / layout.tensor
        activations += key_values * rows * (layout.context - 1) * in_flight
    working = max(_working_bytes(layer, layout) for layer, _ in share.layers) * rows
    fragments = FRAGMENTS * (activations + working + gathered)
    return MemoryEstimate(4 * state, 4 * state + gradients, OPTIMIZER_BYTES * state, gathered, activations, working, fragments)


def _parameter_copies(share: WorkerLayers, layout: ParallelLayout) -> tuple[float, float]:
    """Bytes of gathered parameters with buffers of collectives, and of gradients that are not yet summed over workers.

    While a block is computed, the next one is gathered, and gradients of a third are summed in fp32."""
    parameters, unit = share.parameters / layout.tensor, share.largest_unit / layout.tensor
    number = BYTES[layout.precision]
    if layout.parameter_shards == 1:
        copies = number * parameters if number < 4 else 0.0  # by autocast, until the step's end
        return copies, 0.0
    reshards = layout.reshard_after_forward and layout.pipeline == 1
    gathered = number * (2 * unit if reshards else parameters) + 4 * unit
    sums_late = (layout.accumulation > 1 and not layout.reduce_every_pass) or layout.pipeline > 1
    return gathered, 4 * parameters if sums_late else 0.0


def _kept_bytes(layer: Layer, layout: ParallelLayout) -> float:
    """Per row. Attention in several kernels keeps probabilities, the same after dropout, and its mask. The input of a float8 product is
    kept in 16 bits, as those of others."""
    recomputation = layout.recomputation(layer)
    scores = 0.0 if layout.fused_attention or recomputation == "full" else 2.5 * layer.score_bytes / layout.tensor
    return layer.activations.kept_bytes(recomputation, layout.is_fused(layer)) * layout.division(layer) + scores


def _working_bytes(layer: Layer, layout: ParallelLayout) -> float:
    """Per row: temporary gradients, what is computed again of the layer, and, in a tensor group, a layer's gathered inputs.

    Torch computes the loss of divided logits by an operation for each step, whose results are twice as many."""
    is_fused = layout.is_fused(layer)
    recomputed = layer.activations.kept_bytes("none", is_fused) - layer.activations.kept_bytes(layout.recomputation(layer), is_fused)
    working = layer.fused_working_bytes if is_fused else layer.working_bytes
    if layout.tensor > 1 and layer.role == "output":
        working *= 2
    gathered = 2 * layer.output_bytes if layout.sequence_parallel and layout.tensor > 1 else 0.0
    return (working + max(0.0, recomputed)) * layout.division(layer) + gathered
