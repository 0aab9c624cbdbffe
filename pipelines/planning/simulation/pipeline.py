"""Strategy `sharded` with a pipeline: each worker computes consecutive blocks of the model, microbatch after microbatch.

A schedule gives every worker its operations in order; an operation begins once the worker is free and what it needs has arrived.
1F1B is that of Narayanan et al. 2019, interleaved that of Narayanan et al. 2021. The zero-bubble schedules of Qi et al. 2023 divide a
backward pass into gradients of inputs and of parameters; their orders are made here by a greedy rule, not by their solver.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal, NamedTuple

import numpy as np

from pipelines.errors import ConfigError
from pipelines.planning.simulation.data_parallel import sum_buckets
from pipelines.planning.simulation.links import all_reduce_seconds
from pipelines.planning.simulation.model_parallel import group_count, network_of_strided
from pipelines.planning.simulation.outcome import Outcome, run_steps
from pipelines.planning.simulation.workload import Cluster, GradientBucket, Workload

Schedule = Literal["1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"]


class Operation(NamedTuple):
    """`forward`, `backward`, or the two halves of the latter, `inputs` and `parameters`."""

    kind: Literal["forward", "backward", "inputs", "parameters"]
    stage: int
    microbatch: int


@dataclass(frozen=True)
class SimulatedPipeline:
    """Groups of `degree` workers, each a pipeline. A workload is the pass of one pipeline over all its microbatches."""

    degree: int
    microbatches: int
    schedule: Schedule = "1F1B"

    def simulate(self, workload: Workload, cluster: Cluster, steps: int, seed: int) -> Outcome:
        replicas = group_count(cluster.workers, self.degree)
        orders = operation_orders(self.schedule, self.degree, self.microbatches)
        network, is_within = cluster.network, self.degree <= cluster.network.workers_per_machine
        link = network.within if is_within else network.between
        message = link.seconds(workload.activation_bytes / self.microbatches)
        part = workload.gradient_bytes / self.degree
        sums = [all_reduce_seconds(part, replicas, network_of_strided(network, self.degree))]
        update = workload.optimizer_seconds / self.degree

        def step(factors: np.ndarray) -> tuple[float, Mapping[str, float]]:
            by_place = factors.reshape(replicas, self.degree)
            ends, busy = run_orders(orders, by_place, operation_seconds(self.schedule, self.degree, self.microbatches, workload), message)
            summed = max(sum_buckets([GradientBucket(part)], sums, place_ends, np.zeros(replicas)) for place_ends in ends.T)
            computing = busy + by_place * update
            # Waiting inside the pipeline is a bubble; waiting of pipelines for the slowest of them is for stragglers.
            slowest = float(ends.max())
            causes = {
                "compute": float(computing.mean()),
                "bubble": float((ends.max(axis=1, keepdims=True) - busy).mean()),
                "stragglers": float((slowest - ends.max(axis=1)).mean() + (by_place.max() - by_place.mean()) * update),
                "communication": summed - slowest,
            }
            return summed + float(by_place.max()) * update, causes

        return run_steps(step, cluster, steps, seed, replicas, workload.compute_seconds)


def stages_of_place(schedule: Schedule, place: int, degree: int) -> list[int]:
    """The stages that a worker computes; those of ZBVZeroBubble go through the workers forth and back."""
    if schedule == "1F1B":
        return [place]
    return [place, 2 * degree - 1 - place] if schedule == "ZBVZeroBubble" else [place, place + degree]


def operation_seconds(schedule: Schedule, degree: int, microbatches: int, workload: Workload) -> dict[str, float]:
    """Seconds of each kind of operation. The two halves of a backward pass take equally long."""
    stages = degree * len(stages_of_place(schedule, 0, degree))
    forward, backward = (seconds / microbatches / stages for seconds in (workload.forward_seconds, workload.backward_seconds))
    return {"forward": forward, "backward": backward, "inputs": backward / 2, "parameters": backward / 2}


def operation_orders(schedule: Schedule, degree: int, microbatches: int) -> list[list[Operation]]:
    """Each worker's operations. Raises ConfigError if the schedule needs another number of microbatches."""
    if degree < 1 or microbatches < 1 or (schedule == "Interleaved1F1B" and microbatches % degree):
        raise ConfigError(
            f"{microbatches} microbatches over {degree} workers with schedule {schedule}: interleaved stages need a multiple; set "
            f"microbatches to {max(degree, 1) * max(round(microbatches / max(degree, 1)), 1)}"
        )
    if schedule == "1F1B":
        return [_order_1f1b(place, degree, microbatches) for place in range(degree)]
    if schedule == "Interleaved1F1B":
        return [_order_interleaved(place, degree, microbatches) for place in range(degree)]
    return _order_zero_bubble(schedule, degree, microbatches)


def _order_1f1b(place: int, degree: int, microbatches: int) -> list[Operation]:
    forwards = [Operation("forward", place, number) for number in range(microbatches)]
    backwards = [Operation("backward", place, number) for number in range(microbatches)]
    return _alternate(forwards, backwards, min(degree - place - 1, microbatches))


def _order_interleaved(place: int, degree: int, microbatches: int) -> list[Operation]:
    """Two stages per worker, which take turns after `degree` microbatches."""
    stages, forwards, backwards = [place, place + degree], [], []
    for index in range(2 * microbatches):
        turn, microbatch = index // degree % 2, index // (2 * degree) * degree + index % degree
        forwards.append(Operation("forward", stages[turn], microbatch))
        backwards.append(Operation("backward", stages[1 - turn], microbatch))
    return _alternate(forwards, backwards, min(2 * (degree - place - 1) + degree, 2 * microbatches))


def _alternate(forwards: list[Operation], backwards: list[Operation], warm_up: int) -> list[Operation]:
    """`warm_up` forward passes, then one forward and one backward pass by turns, then the remaining backward passes."""
    turns = [operation for pair in zip(forwards[warm_up:], backwards, strict=False) for operation in pair]
    return [*forwards[:warm_up], *turns, *backwards[len(forwards) - warm_up :]]


def _order_zero_bubble(schedule: Schedule, degree: int, microbatches: int) -> list[list[Operation]]:
    """Every free worker takes gradients of inputs if there are any, else a forward pass of its last stage that may begin, else gradients of
    parameters; all operations count as equally long. As with 1F1B, stage s of S has at most S - s microbatches in memory."""
    stages = 2 * degree
    limits = [stages - stage for stage in range(stages)]
    orders: list[list[Operation]] = [[] for _ in range(degree)]
    ready: list[set[Operation]] = [set() for _ in range(degree)]
    place_of = {stage: place for place in range(degree) for stage in stages_of_place(schedule, place, degree)}
    in_memory = [0] * stages
    ready[place_of[0]] |= {Operation("forward", 0, number) for number in range(microbatches)}
    finishing: list[tuple[int, int, Operation]] = []
    clock, idle = 0, set(range(degree))
    while True:
        for place in sorted(idle):
            fits = [
                operation
                for operation in ready[place]
                if operation.kind != "forward" or in_memory[operation.stage] < limits[operation.stage]
            ]
            if not fits:
                continue
            operation = min(fits, key=_urgency)
            ready[place].discard(operation)
            orders[place].append(operation)
            in_memory[operation.stage] += {"forward": 1, "inputs": 0, "parameters": -1}[operation.kind]
            heappush(finishing, (clock + 1, place, operation))
            idle.discard(place)
        if not finishing:
            return orders
        clock = finishing[0][0]
        while finishing and finishing[0][0] == clock:
            _, place, operation = heappop(finishing)
            idle.add(place)
            for successor in _successors(operation, stages):
                ready[place_of[successor.stage]].add(successor)


def _urgency(operation: Operation) -> tuple[int, int, int]:
    return (
        ("inputs", "forward", "parameters").index(operation.kind),
        operation.microbatch if operation.kind != "forward" else 0,
        -operation.stage,
    )


def _successors(operation: Operation, stages: int) -> list[Operation]:
    """The operations that can be computed after one of a zero-bubble schedule."""
    _, stage, microbatch = operation
    if operation.kind == "forward":
        return [Operation("forward", stage + 1, microbatch) if stage + 1 < stages else Operation("inputs", stage, microbatch)]
    if operation.kind == "inputs":
        before = [Operation("inputs", stage - 1, microbatch)] if stage else []
        return [Operation("parameters", stage, microbatch), *before]
    return []


def run_orders(
    orders: Sequence[Sequence[Operation]], factors: np.ndarray, seconds: Mapping[str, float], message_seconds: float
) -> tuple[np.ndarray, np.ndarray]:
    """When each worker is computed_operations, and how long it computed, both of shape (pipelines, workers of one), as `factors` are.

    A stage's output takes `message_seconds` to the next one unless that is on the same worker.
    """
    last = max(operation.stage for order in orders for operation in order)
    place_of = {operation.stage: place for place, order in enumerate(orders) for operation in order}
    ends: dict[Operation, np.ndarray] = {}
    free, busy, positions = np.zeros_like(factors), np.zeros_like(factors), [0] * len(orders)
    active, computed_operations = list(range(len(orders))), 0
    while active:
        waiting = []
        for place in active:
            while positions[place] < len(orders[place]):
                operation = orders[place][positions[place]]
                before = _predecessor(operation, last)
                if before is not None and before not in ends:
                    break
                begin = free[:, place]
                if before is not None:
                    is_here = place_of[before.stage] == place
                    begin = np.maximum(begin, ends[before] + (0.0 if is_here else message_seconds))
                duration = factors[:, place] * seconds[operation.kind]
                ends[_key(operation)] = free[:, place] = begin + duration
                busy[:, place] += duration
                positions[place] += 1
            if positions[place] < len(orders[place]):
                waiting.append(place)
        assert sum(positions) > computed_operations, "no operation waits for one that its own worker has later"
        active, computed_operations = waiting, sum(positions)
    return free, busy


def _key(operation: Operation) -> Operation:
    """Under which its end is looked up: gradients of inputs are what the stage before waits for, like those of a whole backward pass."""
    return Operation("inputs", operation.stage, operation.microbatch) if operation.kind == "backward" else operation


def _predecessor(operation: Operation, last: int) -> Operation | None:
    """The operation whose result it needs; the worker's own order has the others before it."""
    kind, stage, microbatch = operation
    if kind == "forward":
        return Operation("forward", stage - 1, microbatch) if stage else None
    if kind == "parameters":
        return Operation("inputs", stage, microbatch)
    return Operation("inputs", stage + 1, microbatch) if stage < last else Operation("forward", stage, microbatch)
