"""Simulated against measured steps: a small GPT on 1, 2, 4 processes of this machine, by the project's strategies over Gloo.

    python -m benchmarks.planning.simulated [--workers 1 2 4] [--turns 3] [--small] [--results FOLDER]

Measured beforehand, and all that the simulator is told: a step of one process alone; and what two processes exchange, as a calibration
measures it, to which latency and rate are fitted. Processes have one thread. Where there are more of them than cores, each computes and
copies so many times longer; and where all cores compute, nothing overlaps. `parameter_server`, `federated` and `boosting` need Ray, clients
and LightGBM, and are not measured here.

Prints seconds of a step with their ratio, and writes simulated-<machine>-<date>.json.
"""

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch.distributed as dist

from benchmarks.report import RESULTS, Row, machine, package_versions, save, show
from benchmarks.train.spread_worker import Case, count_readers, create_case_strategy, random_rows, take_step
from pipelines.planner.calibration import fit_messages, time_exchanges
from pipelines.planner.processes import call_in_processes
from pipelines.planning.simulation.data_parallel import SimulatedDdp, SimulatedExact
from pipelines.planning.simulation.links import Network, NetworkLink
from pipelines.planning.simulation.model_parallel import SimulatedContext, SimulatedSharded, SimulatedTensor
from pipelines.planning.simulation.outcome import SimulatedStrategy
from pipelines.planning.simulation.pipeline import SimulatedPipeline
from pipelines.planning.simulation.rounds import SimulatedLocalSgd
from pipelines.planning.simulation.workload import Cluster, Workload, even_buckets

GPT = Case(layers=4, width=256, vocabulary=1_024, context=64, rows=16)
SMALL = Case(layers=2, width=64, vocabulary=256, context=16, rows=8)
STEPS, INNER_STEPS, WARM_UP = 8, 4, 2
BUCKET_BYTES = 25 * 2**20
"""Of `ddp` on CPUs."""
ATTENTION_SHARE = 0.1
"""Of a block of so short rows; its products are 4 * width * context of 24 * width ** 2 + 4 * width * context."""


@dataclass(frozen=True)
class Measured:
    """What the simulator is told."""

    case: Case
    step_seconds: float
    parameters: float
    links: dict[str, NetworkLink]
    cores: int


def time_steps(workers: int, case: Case, train: dict[str, Any]) -> dict[str, float]:
    """Mean seconds of a step of the slowest worker, after WARM_UP steps; and the parameters of its part of the model."""
    answers = call_in_processes(workers, time_own_steps, case, train)
    return {name: max(answer[name] for answer in answers) for name in answers[0]}


def time_own_steps(case: Case, train: dict[str, Any]) -> dict[str, float]:
    """The same of one worker, in its process."""
    strategy = create_case_strategy(case, dist.get_rank(), dist.get_world_size(), train)
    rows = random_rows(case, strategy.mesh.replica)
    batch: Any = [rows] if train.get("strategy", {}).get("kind") in ("exact", "local_sgd") else rows  # by shard, or by replica
    for number in range(WARM_UP):
        take_step(strategy, batch, number)
    dist.barrier()
    started = time.perf_counter()
    for number in range(STEPS):
        take_step(strategy, batch, WARM_UP + number)
    seconds = (time.perf_counter() - started) / STEPS
    strategy.close()
    return {"seconds": seconds, "parameters": float(sum(parameter.numel() for parameter in strategy.model.parameters()))}


def measure(case: Case, turns: int) -> Measured:
    answers = [time_steps(1, case, {}) for _ in range(turns)]
    fits = {exchanged: fit_messages(timed) for exchanged, timed in time_exchanges(2).items()}
    links = {exchanged: NetworkLink(fit["bytes_per_second"], fit["latency_seconds"]) for exchanged, fit in fits.items()}
    cores = int(machine()["cores"])
    return Measured(case, median(answer["seconds"] for answer in answers), answers[0]["parameters"], links, cores)


def way_settings(workers: int) -> dict[str, dict[str, Any]]:
    """Settings of `train`, by the name of a way that this many workers can go."""
    sharded = {"tensor 2": {"tensor": 2}, "pipeline 2": {"pipeline": 2, "microbatches": 4}, "context 2": {"context": 2}}
    ways: dict[str, dict[str, Any]] = {"ddp": {}, "exact": {"strategy": {"kind": "exact"}}, "sharded": {"strategy": {"kind": "sharded"}}}
    ways["local_sgd 4"] = {"strategy": {"kind": "local_sgd", "replicas": workers, "inner_steps": INNER_STEPS}}
    if workers % 2 == 0:
        ways |= {name: {"strategy": {"kind": "sharded", "shard": workers // 2, **degrees}} for name, degrees in sharded.items()}
    return ways


def way_strategy(way: str, workers: int) -> SimulatedStrategy:
    """What the simulator runs for a way."""
    strategies: dict[str, SimulatedStrategy] = {
        "ddp": SimulatedDdp(overlaps=False),
        "exact": SimulatedExact(shards=workers, overlaps=False),
        "sharded": SimulatedSharded(prefetches=False),
        "local_sgd 4": SimulatedLocalSgd(INNER_STEPS),
        "tensor 2": SimulatedTensor(2),
        "pipeline 2": SimulatedPipeline(2, 4),
        "context 2": SimulatedContext(2, ATTENTION_SHARE),
    }
    return strategies[way]


def simulate(measured: Measured, way: str, workers: int, rows_factor: float) -> float:
    """Seconds of a step; `rows_factor` is a data-parallel worker's rows over those of the measured one."""
    case, load = measured.case, max(workers / measured.cores, 1.0)
    exchanged = {"sharded": "shards", "tensor 2": "activations", "pipeline 2": "microbatches", "context 2": "links"}.get(way, "sums")
    link = measured.links.get(exchanged, measured.links["links"])
    shared = NetworkLink(link.bytes_per_second / load, link.latency_seconds)
    gradient_bytes = 4 * measured.parameters
    workload = Workload(
        measured.step_seconds / 3,
        measured.step_seconds * 2 / 3,
        even_buckets(gradient_bytes, max(round(gradient_bytes / BUCKET_BYTES), 1)),
        blocks=case.layers,
        activation_bytes=4.0 * case.rows * case.context * case.width,
    ).scale_rows(rows_factor)
    cluster = Cluster(workers, Network(shared, shared, workers_per_machine=workers), workers_per_core=workers / measured.cores)
    return way_strategy(way, workers).simulate(workload, cluster, STEPS, seed=0).step_seconds


def compare(measured: Measured, workers: int, turns: int) -> list[Row]:
    rows: list[Row] = []
    for way, train in way_settings(workers).items():
        rows_factor = workers / count_readers(workers, train)
        case = replace(measured.case, rows=round(measured.case.rows * rows_factor))
        seconds = median(time_steps(workers, case, train)["seconds"] for _ in range(turns))
        simulated = simulate(measured, way, workers, rows_factor)
        rows.append({"workers": workers, "way": way, "measured, s": seconds, "simulated, s": simulated, "ratio": simulated / seconds})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4], help="processes")
    parser.add_argument("--turns", type=int, default=3, help="measurements, of which the median counts")
    parser.add_argument("--small", action="store_true", help="a small model, to test that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON file")
    arguments = parser.parse_args()
    measured = measure(SMALL if arguments.small else GPT, arguments.turns)
    inputs: list[Row] = [{"input": "step of one process, s", "value": measured.step_seconds}]
    for way, link in measured.links.items():
        inputs += [
            {"input": f"{way}: latency, us", "value": 1e6 * link.latency_seconds},
            {"input": f"{way}: rate, MB/s", "value": link.bytes_per_second / 1e6},
        ]
    inputs.append({"input": "parameters, million", "value": measured.parameters / 1e6})
    steps = [row for workers in arguments.workers for row in compare(measured, workers, arguments.turns)]
    tables = {"what the simulator is told": inputs, "seconds of a step": steps}
    for title, table in tables.items():
        show(title, table)
    print(save("simulated", tables, package_versions("torch"), arguments.results))


if __name__ == "__main__":
    main()
