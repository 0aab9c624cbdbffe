"""Seconds of a step: what each layer computes, what is sent and not hidden behind it, what a pipeline waits, and what else a step does.

A matrix product takes its operations at the fraction of the peak that large ones reach, and after them the traffic of its inputs and
outputs, which tiles cannot hide at their start and end (the additive form of the roofline of Williams, Waterman and Patterson 2009). So
small products are slow without a constant of their own. Elementwise kernels take their traffic, attention its own fraction of the peak, and
no layer takes less than the launches of its kernels.

Backward passes have two products for each forward one, five matrix products of attention for two (Dao 2023), and twice the traffic.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from pipelines.planning.collectives import (
    DeviceGroup,
    Network,
    all_gather_seconds,
    all_reduce_seconds,
    exchange_network,
    network,
    reduce_scatter_seconds,
    send_seconds,
)
from pipelines.planning.hardware import BYTES, Exchanged, Hardware
from pipelines.planning.layouts import ParallelLayout
from pipelines.planning.measured import MeasuredPasses
from pipelines.planning.memory import MemoryEstimate, estimate_memory
from pipelines.planning.model_costs import Layer, Matmul, ModelCosts, TensorMessage, convert_precision
from pipelines.planning.stages import WorkerLayers, bubble_seconds, worker_shares

UPDATE_BYTES = 40
"""Traffic of a fused AdamW per parameter: reads four numbers of fp32 and writes three, and the gradient's norm and scale read it twice and
write it once."""
LOOP_UPDATE_BYTES = 110
"""The same with a kernel for each operation on each parameter: 84 to 110."""
ASYNCHRONOUS_HIDDEN = 0.25
"""The part of a tensor group's traffic that asynchronous tensor parallelism hides: assumed, from a gain of 8 % of a step whose traffic is a
third (PyTorch's report of async TP, 2024)."""
FLOAT8_CAST_BYTES = 5
"""Traffic per number that is converted to 8 bits: read for its maximum, read and written."""
COMPRESSED_BYTES = {"none": 4.0, "bf16": 2.0, "fp16": 2.0, "powersgd": 0.1, "topk": 0.06}
"""Bytes per gradient that `ddp` sends; PowerSGD's depend on the shapes: assumed."""


@dataclass(frozen=True)
class StepEstimate:
    """Seconds of a step, and what follows from them. `communication_seconds` are those that nothing hides."""

    matmul_seconds: float
    attention_seconds: float
    elementwise_seconds: float
    communication_seconds: float
    bubble_seconds: float
    optimizer_seconds: float
    data_seconds: float
    rows: int
    units: int
    """Tokens, or rows where a model has no tokens."""
    workers: int
    mfu: float
    """Model FLOPs utilisation: FLOPs of `ModelCosts.model_flops` by those of the peak, whatever is computed again."""
    memory: MemoryEstimate

    @property
    def compute_seconds(self) -> float:
        return self.matmul_seconds + self.attention_seconds + self.elementwise_seconds

    @property
    def step_seconds(self) -> float:
        waits = self.communication_seconds + self.bubble_seconds + self.data_seconds
        return self.compute_seconds + self.optimizer_seconds + waits

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.step_seconds

    @property
    def units_per_second(self) -> float:
        return self.units / self.step_seconds

    @property
    def units_per_second_per_worker(self) -> float:
        return self.units_per_second / self.workers

    @property
    def memory_gib(self) -> float:
        return self.memory.gib

    @property
    def limit(self) -> str:
        """The kind of work or wait that takes most of a step."""
        parts = {
            "matrix products": self.matmul_seconds,
            "attention": self.attention_seconds,
            "memory bandwidth": self.elementwise_seconds + self.optimizer_seconds,
            "communication": self.communication_seconds,
            "waiting for other stages": self.bubble_seconds,
            "reading data": self.data_seconds,
        }
        return max(parts, key=lambda name: parts[name])


@dataclass(frozen=True)
class _Pass:
    """Seconds of a forward or backward pass of a layer."""

    matmul: float = 0.0
    attention: float = 0.0
    elementwise: float = 0.0
    tensor: float = 0.0
    """Traffic that nothing hides: of a tensor or a context group."""

    @property
    def compute(self) -> float:
        return self.matmul + self.attention + self.elementwise

    @property
    def total(self) -> float:
        return self.compute + self.tensor

    def times(self, factor: float) -> "_Pass":
        return _Pass(*(factor * value for value in (self.matmul, self.attention, self.elementwise, self.tensor)))

    def scale_compute(self, factor: float) -> "_Pass":
        return _Pass(factor * self.matmul, factor * self.attention, factor * self.elementwise, self.tensor)

    def plus(self, other: "_Pass") -> "_Pass":
        return _Pass(
            self.matmul + other.matmul,
            self.attention + other.attention,
            self.elementwise + other.elementwise,
            self.tensor + other.tensor,
        )


@dataclass(frozen=True)
class _Machine:
    """The hardware that computes layers, in a layout."""

    hardware: Hardware
    layout: ParallelLayout
    links: Network

    @property
    def memory_bandwidth(self) -> float:
        return self.hardware.memory_bytes_per_second * self.hardware.achieved.memory.fraction

    def group(self, *degrees: str) -> DeviceGroup:
        return self.layout.group(self.hardware.devices_per_machine, *degrees)

    def exchange_links(self, exchanged: Exchanged, members: DeviceGroup) -> Network:
        """The links by which a group exchanges what is named."""
        return exchange_network(self.hardware, exchanged) if members.machines == 1 else self.links


def matmul_seconds(hardware: Hardware, precision: str, rows: float, inputs: float, outputs: float) -> float:
    """Seconds of the product of a (rows x inputs) and a (inputs x outputs) matrix. Results have at least two bytes."""
    flops = 2 * rows * inputs * outputs
    number = BYTES[precision]
    traffic = number * (rows * inputs + inputs * outputs) + max(2, number) * rows * outputs
    bandwidth = hardware.memory_bytes_per_second * hardware.achieved.memory.fraction
    return flops / (hardware.peak(precision) * hardware.achieved.matmul.fraction) + traffic / bandwidth


def estimate_step(model: ModelCosts, hardware: Hardware, layout: ParallelLayout, measured: MeasuredPasses | None = None) -> StepEstimate:
    """The estimate of a step of `layout.global_batch` rows. With `measured` passes of the model, those of a layout take as much longer than
    by the roofline as these do, and workers wait for the loader if it is slower; without, data count as fast enough."""
    converted = convert_precision(model, BYTES[layout.precision])
    machine = _Machine(hardware, layout, network(hardware))
    rows = layout.microbatch / layout.parts
    of_layer = {layer: _layer_passes(layer, machine, rows) for layer in converted.layers}
    factor = _roofline_factor(converted, machine, rows / layout.context, measured) if measured else 1.0
    shares = worker_shares(converted, layout)
    workers = [(share, *_passes_of_worker(share, of_layer, factor)) for share in shares]
    slowest, forward, backward = max(workers, key=lambda worker: worker[1].total + worker[2].total)
    count = layout.accumulation * layout.parts
    bubble = _bubble(machine, forward, backward, rows, slowest) * layout.accumulation
    computed = forward.plus(backward).times(count)
    gathered = _data_parallel_seconds(slowest, machine, forward, backward) + _overhead_seconds(machine)
    partial = StepEstimate(
        computed.matmul,
        computed.attention,
        computed.elementwise,
        computed.tensor + gathered,
        bubble,
        _optimizer_seconds(slowest, machine, measured.update_seconds / model.parameters if measured else None),
        0.0,
        layout.global_batch,
        layout.global_batch * model.units_per_row,
        layout.workers,
        0.0,
        estimate_memory(model, layout),
    )
    loader_rows_per_second = measured.loader_rows_per_second if measured else inf
    data = max(0.0, layout.global_batch / layout.readers / loader_rows_per_second - partial.step_seconds)
    estimate = replace(partial, data_seconds=data)
    peak = hardware.peak(layout.precision) * layout.workers
    return replace(estimate, mfu=model.model_flops * layout.global_batch / estimate.step_seconds / peak)


def _roofline_factor(model: ModelCosts, machine: _Machine, rows: float, measured: MeasuredPasses) -> float:
    """Measured seconds of a pass of all layers on one worker, by those of the roofline."""
    layout = ParallelLayout(full_copies=True, precision=machine.layout.precision, compile=machine.layout.compile)
    alone = _Machine(machine.hardware, layout, machine.links)
    passes = [one.times(layer.count) for layer in model.layers for one in _layer_passes(layer, alone, rows)]
    return measured.pass_seconds(rows) / sum(one.compute for one in passes)


def _passes_of_worker(share: WorkerLayers, of_layer: Mapping[Layer, tuple[_Pass, _Pass]], factor: float) -> tuple[_Pass, _Pass]:
    """Forward and backward pass of a microbatch through all layers of a worker, which compute so many times as long."""
    forward, backward = _Pass(), _Pass()
    for layer, count in share.layers:
        one_forward, one_backward = of_layer[layer]
        forward, backward = forward.plus(one_forward.times(count)), backward.plus(one_backward.times(count))
    return forward.scale_compute(factor), backward.scale_compute(factor)


def _layer_passes(layer: Layer, machine: _Machine, rows: float) -> tuple[_Pass, _Pass]:
    layout = machine.layout
    part = rows / layout.context
    uses_float8 = layout.float8 and layer.role == "block"
    last_product = matmul_forward = matmul_backward = cast_forward = cast_backward = 0.0
    for product in layer.matmuls:
        inputs, outputs = _worker_part(product, layout)
        positions = part * product.positions
        precision = "fp8" if uses_float8 and product.float8 else layout.precision
        last_product = matmul_seconds(machine.hardware, precision, positions, inputs, outputs)
        matmul_forward += last_product
        matmul_backward += matmul_seconds(machine.hardware, precision, positions, outputs, inputs)
        matmul_backward += matmul_seconds(machine.hardware, precision, inputs, positions, outputs)
        if precision == "fp8":
            cast_forward += FLOAT8_CAST_BYTES * positions * inputs / machine.memory_bandwidth
            cast_backward += FLOAT8_CAST_BYTES * positions * outputs / machine.memory_bandwidth
    attention, merge_forward, merge_backward = _attention_seconds(layer, machine, part)
    traffic = (layer.fused_bytes if layout.is_fused(layer) else layer.elementwise_bytes) * part * layout.division(layer)
    elementwise = traffic / machine.memory_bandwidth
    sent_forward, sent_backward = _activation_traffic(layer, machine, part)
    launches = (layer.fused_kernels if layout.is_fused(layer) else layer.kernels) * machine.hardware.kernel_seconds
    forward = _at_least(_Pass(matmul_forward, attention, elementwise + cast_forward + merge_forward, sent_forward), launches)
    once = _Pass(matmul_backward, 2.5 * attention, 2 * elementwise + cast_backward + merge_backward, sent_backward)
    return forward, _at_least(once, 2 * launches).plus(_recompute(forward, last_product, layer, layout))


def _at_least(pass_: _Pass, seconds: float) -> _Pass:
    """A layer whose kernels are shorter than their launches takes as long as these."""
    return replace(pass_, elementwise=pass_.elementwise + max(0.0, seconds - pass_.compute))


def _recompute(forward: _Pass, last_product: float, layer: Layer, layout: ParallelLayout) -> _Pass:
    """The part of a block that a backward pass computes again. Recomputation stops when all that was not kept is there again, so that the
    last product, and the sum over a tensor group after it, are left out (torch's checkpointing without reentrance, since torch 2.1)."""
    match layout.recomputation(layer):
        case "full":
            messages = sum(message.direction == "forward" for message in layer.tensor_messages)
            sums = (messages - 1) / messages if messages else 1.0
            return replace(forward, matmul=forward.matmul - last_product, tensor=forward.tensor * sums)
        case "alternate":
            return _Pass(matmul=0.5 * (forward.matmul - last_product), elementwise=forward.elementwise)
        case "selective":
            return _Pass(elementwise=forward.elementwise)
    return _Pass()


def _worker_part(product: Matmul, layout: ParallelLayout) -> tuple[float, float]:
    """Inputs and outputs of a worker's part of a product."""
    inputs = product.inputs / (layout.tensor if product.divided_by == "inputs" else 1)
    return inputs, product.outputs / (layout.tensor if product.divided_by == "outputs" else 1)


def _attention_seconds(layer: Layer, machine: _Machine, rows: float) -> tuple[float, float, float]:
    """Seconds of attention's kernels in a forward pass, and further traffic, forward and backward.

    In several kernels, attention writes and reads its probabilities: as scores, masked, as probabilities, with dropout, and in products.
    A ring of n workers combines n - 1 results in fp32: about 38 bytes per number and part, and 30 backward."""
    layout, hardware = machine.layout, machine.hardware
    if not layer.attention_flops:
        return 0.0, 0.0, 0.0
    if not layout.fused_attention:
        products = layer.attention_flops * rows / layout.tensor / hardware.peak(layout.precision) / hardware.achieved.matmul.fraction
        scores = layer.score_bytes * rows / layout.tensor / machine.memory_bandwidth
        return products, 7.5 * scores, 15 * scores
    flops = layer.attention_flops * layer.attention_computed * rows / layout.tensor
    kernel = flops / (hardware.peak(layout.precision) * hardware.achieved.attention.fraction)
    if layout.context == 1 or not layout.ring_attention:
        return kernel, 0.0, 0.0
    numbers = layer.attention_bytes / 2 * rows / layout.tensor
    return kernel, 38 * numbers * (layout.context - 1) / machine.memory_bandwidth, 30 * numbers * layout.context / machine.memory_bandwidth


def _activation_traffic(layer: Layer, machine: _Machine, rows: float) -> tuple[float, float]:
    """Seconds in which a layer waits for activations of its tensor and context groups, in a forward and a backward pass."""
    layout, links = machine.layout, machine.links
    forward = backward = 0.0
    if layout.tensor > 1:
        for message in layer.tensor_messages:
            seconds = _tensor_seconds(message, layer, machine, rows)
            forward, backward = (forward + seconds, backward) if message.direction == "forward" else (forward, backward + seconds)
        if layout.asynchronous_tensor:
            forward, backward = ((1 - ASYNCHRONOUS_HIDDEN) * seconds for seconds in (forward, backward))
    if layout.context > 1 and layer.key_value_bytes:
        members = machine.group("context")
        heads = 2 * layer.attention_bytes if layout.ring_attention else layer.key_value_bytes  # torch's ring repeats them for all heads
        total = heads * rows * layout.context / layout.tensor
        forward += all_gather_seconds(total, members, links)
        backward += reduce_scatter_seconds(4 / BYTES[layout.precision] * total, members, links)  # gradients are summed in fp32
        if layout.ring_attention:
            backward += all_gather_seconds(total, members, links)
    return forward, backward


def _tensor_seconds(message: TensorMessage, layer: Layer, machine: _Machine, rows: float) -> float:
    """Seconds of a message of a tensor group, for so many rows. With `sequence_parallel`, a sum is scattered and gathered apart."""
    members, size, layout = machine.group("tensor"), message.bytes_per_row * rows, machine.layout
    links = machine.exchange_links("activations", members)
    if message.kind == "gather":
        return all_gather_seconds(size, members, links)
    if not layout.sequence_parallel:
        return all_reduce_seconds(size, members, links)
    gathered = size / (2 if layout.float8 and layer.role == "block" else 1)
    return all_gather_seconds(gathered, members, links) + reduce_scatter_seconds(size, members, links)


def _bubble(machine: _Machine, forward: _Pass, backward: _Pass, rows: float, share: WorkerLayers) -> float:
    """Seconds of a pass in which a stage waits: by its schedule, and for the first messages. A processor that computes also sends, and so
    waits for all of them."""
    layout = machine.layout
    if layout.pipeline == 1:
        return 0.0
    weights = backward.matmul / 2
    waits = bubble_seconds(layout.schedule, layout.pipeline, forward.total, backward.total - weights, weights, layout.stages_per_worker)
    message = max(layer.output_bytes for layer, _ in share.layers) * rows / layout.context
    message /= layout.tensor if layout.sequence_parallel else 1
    members = machine.group("pipeline")
    seconds = 2 * layout.stages_per_worker * send_seconds(message, members.machines == 1, machine.exchange_links("microbatches", members))
    later_microbatches = layout.parts - 1 if "microbatches" in machine.hardware.exchanges else 0
    return waits + seconds * (layout.pipeline - 1 + later_microbatches)


@dataclass(frozen=True)
class _Phase:
    """A forward or backward pass, the seconds of the traffic beside it, and how often it is computed in a step."""

    traffic: float
    compute: float
    count: int


def _overhead_seconds(machine: _Machine) -> float:
    """Seconds that a step of a divided model pays once: the largest figure of the exchanges that the layout has."""
    layout = machine.layout
    groups: dict[Exchanged, tuple[str, ...]] = {"shards": ("shard", "context"), "activations": ("tensor",), "microbatches": ("pipeline",)}
    if layout.full_copies:
        return 0.0
    members = {exchanged: machine.group(*degrees) for exchanged, degrees in groups.items()}
    used = [exchanged for exchanged, group in members.items() if group.size > 1 and group.machines == 1]
    exchanges = machine.hardware.exchanges
    return max((exchanges[exchanged].step_seconds for exchanged in used if exchanged in exchanges), default=0.0)


def _data_parallel_seconds(share: WorkerLayers, machine: _Machine, forward: _Pass, backward: _Pass) -> float:
    """Seconds that a step loses to gathering parameters and to summing gradients: what is not hidden behind computing, and what the
    computing that hides the rest loses to it."""
    layout, links = machine.layout, machine.links
    parameters = share.parameters / layout.tensor
    blocks = sum(count for _, count in share.blocks)
    in_blocks = sum(count * layer.parameters for layer, count in share.blocks) / layout.tensor
    outside = parameters - in_blocks if blocks < sum(count for _, count in share.layers) else 0.0  # of which another unit consists
    units = max(1, blocks + (1 if outside else 0))
    if layout.parameter_shards == 1:
        members = machine.group("replicate", "shard", "context")
        links = machine.exchange_links("sums", members) if layout.full_copies else links
        sums = all_reduce_seconds(COMPRESSED_BYTES[layout.compression] * parameters, members, links)
        return _seconds_lost(machine, [_Phase(sums, backward.total, 1)], units)
    members = machine.group("shard", "context")
    links = machine.exchange_links("shards", members)
    second_gather = blocks * all_gather_seconds(BYTES[layout.precision] * in_blocks / blocks, members, links) if blocks else 0.0
    gather = second_gather + (all_gather_seconds(BYTES[layout.precision] * outside, members, links) if outside else 0.0)
    scatter = units * reduce_scatter_seconds(4 * parameters / units, members, links)
    scatter += all_reduce_seconds(4 * parameters / layout.parameter_shards, machine.group("replicate"), links)
    return _seconds_lost(machine, _phases(layout, gather, second_gather, scatter, forward.total, backward.total), units)


def _phases(layout: ParallelLayout, gather: float, second_gather: float, scatter: float, forward: float, backward: float) -> list[_Phase]:
    """The passes of a step: parameters are gathered for every forward pass, and those of blocks again for the backward one if freed.
    Gradients are summed after every pass, or after the last one. A pipeline gathers and sums once, whatever its microbatches."""
    passes = layout.accumulation if layout.pipeline == 1 else 1
    sums = passes if layout.reduce_every_pass else 1
    second_gather = second_gather if layout.reshard_after_forward and layout.pipeline == 1 else 0.0
    return [
        _Phase(gather, forward, passes),
        _Phase(second_gather + scatter, backward, sums),
        _Phase(second_gather, backward, passes - sums),
    ]


def _seconds_lost(machine: _Machine, phases: list[_Phase], units: float) -> float:
    """The traffic of a phase's first or last unit has nothing beside it; of the rest, what computing does not hide is lost, and a part of
    computing while it runs."""
    seconds = 0.0
    for phase in phases:
        alone = phase.traffic / units
        overlapping = phase.traffic - alone
        slowdown = machine.hardware.contention * min(overlapping, phase.compute)
        seconds += phase.count * (alone + max(0.0, overlapping - phase.compute) + slowdown)
    return seconds


def _optimizer_seconds(share: WorkerLayers, machine: _Machine, parameter_seconds: float | None) -> float:
    """Seconds of the update, of measured ones per parameter if there are any."""
    layout = machine.layout
    parameters = share.parameters / layout.tensor / layout.parameter_shards
    if parameter_seconds is not None:
        return parameters * parameter_seconds
    traffic = (UPDATE_BYTES if layout.fused_optimizer else LOOP_UPDATE_BYTES) * parameters
    if layout.offload:  # gradients to the machine and parameters back, and an update in its memory
        host = machine.hardware.host_bytes_per_second
        return (8 * parameters + traffic) / host
    return traffic / machine.memory_bandwidth
