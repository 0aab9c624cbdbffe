"""Draws how strategies scale, and goodput over the rate of failures. All of it is simulated; nothing is measured.

    python -m benchmarks.planning.scaling [--pictures FOLDER] [--small]

Prints each strategy's efficiency over the number of workers, the largest number up to which it is at least THRESHOLD, and goodputs; and
writes scaling-efficiency.svg and scaling-goodput.svg. Every worker keeps the same rows (weak scaling), so efficiency is rows per second
and worker, as a share of a single worker's.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.report import Row, show
from pipelines.planning.simulation.data_parallel import SimulatedDdp, SimulatedExact
from pipelines.planning.simulation.links import Network, NetworkLink
from pipelines.planning.simulation.model_parallel import SimulatedContext, SimulatedSharded, SimulatedTensor
from pipelines.planning.simulation.outcome import Outcome
from pipelines.planning.simulation.parameter_servers import SimulatedServers
from pipelines.planning.simulation.pipeline import SimulatedPipeline
from pipelines.planning.simulation.rounds import SimulatedFederated, SimulatedLocalSgd
from pipelines.planning.simulation.scaling import StrategyFor, keep_rows_per_worker, pays_until, scaling_curve
from pipelines.planning.simulation.stragglers import SpeedVariation
from pipelines.planning.simulation.training_run import CheckpointPlan, Faults, equal_division, simulate_run
from pipelines.planning.simulation.trees import SimulatedBoosting
from pipelines.planning.simulation.workload import Cluster, Workload, even_buckets
from pipelines.report.figures.canvas import colour, drawing

THRESHOLD = 0.8
PICTURES = Path("docs/pictures")
WORKERS = [2**power for power in range(3, 15)]
STEPS, SEED = 3, 0
PARAMETERS, BLOCKS, WIDTH, TOKENS = 1.3e9, 24, 2_048, 16_384
"""A GPT of the size of GPT-3 XL (Brown et al. 2020, table 2.1), and a GPU's tokens in a step."""
OPERATIONS_PER_SECOND = 400e12
"""Of an H100 in bf16: Llama 3's 38 to 43 % of its peak (arXiv 2407.21783, table 4)."""
MODEL = Workload(
    forward_seconds=2 * PARAMETERS * TOKENS / OPERATIONS_PER_SECOND,
    backward_seconds=4 * PARAMETERS * TOKENS / OPERATIONS_PER_SECOND,
    buckets=even_buckets(2 * PARAMETERS, BLOCKS),
    blocks=BLOCKS,
    activation_bytes=2.0 * WIDTH * TOKENS,
)
STRAGGLERS = SpeedVariation(worker_sigma=0.08 / 5.4, step_sigma=0.01)
"""As in benchmarks/planning/horovod.py."""
FAST = Cluster(
    1,
    # Eight H100 of a machine with 400 Gbit/s of InfiniBand each, of which NCCL reaches about 0.9; NVLink has 450 GB/s each way.
    # Latencies are those of NCCL's tuning table (ring, Simple): 14.0 and 3.4 us.
    Network(NetworkLink(8 * 0.9 * 50e9, 14.0e-6), NetworkLink(0.9 * 450e9, 3.4e-6), 8, machines_per_rack=32, oversubscription=2.0),
    STRAGGLERS,
)
SLOW = Cluster(
    1,
    # The same machines with one interface of 25 Gbit/s, as in a cloud without a network for training.
    Network(NetworkLink(0.93 * 25e9 / 8, 14.0e-6), NetworkLink(0.9 * 450e9, 3.4e-6), 8, machines_per_rack=32, oversubscription=2.0),
    STRAGGLERS,
)
TREE = Workload(1e6 / 10.5e6 * 130.1 / 500, 1e-9)
"""A million rows of Higgs a worker: 10.5 million took LightGBM 130.1 s for 500 trees of 255 leaves (LightGBM's docs/Experiments.rst)."""
GROUP = 8
DAY = 24 * 3600.0


def strategies() -> dict[str, StrategyFor]:
    """By name. A group of GPUs that computes rows together has the rows of all of them."""
    group = MODEL.scale_rows(GROUP)
    of_all: dict[str, StrategyFor] = {
        "ddp, ring": keep_rows_per_worker(MODEL, SimulatedDdp("ring")),
        "ddp, tree": keep_rows_per_worker(MODEL, SimulatedDdp("tree")),
        "exact": lambda workers: (SimulatedExact(shards=workers), MODEL),
        "sharded": keep_rows_per_worker(MODEL, SimulatedSharded()),
        "tensor 8": keep_rows_per_worker(group, SimulatedTensor(GROUP)),
        "context 8": keep_rows_per_worker(group, SimulatedContext(GROUP, attention_share=0.3)),
        "pipeline 8, 1F1B": keep_rows_per_worker(group, SimulatedPipeline(GROUP, 4 * GROUP, "1F1B")),
        "pipeline 8, ZBV": keep_rows_per_worker(group, SimulatedPipeline(GROUP, 4 * GROUP, "ZBVZeroBubble")),
        "local_sgd 16": keep_rows_per_worker(MODEL, SimulatedLocalSgd(inner_steps=16)),
        "federated": lambda workers: (SimulatedFederated(workers, local_epochs=16, rows_sigma=0.5), MODEL),
        "boosting": keep_rows_per_worker(TREE, SimulatedBoosting(leaves=255, inputs=28)),
    }
    return of_all


def server_strategies(cluster: Cluster) -> dict[str, StrategyFor]:
    """A server on an interface of its own for eight workers."""

    def server_strategy(**settings: object) -> StrategyFor:
        return lambda workers: (SimulatedServers(max(workers // GROUP, 1), server=cluster.network.between, **settings), MODEL)  # type: ignore[arg-type]

    return {"servers, sync": server_strategy(), "servers, bounded 4": server_strategy(mode="bounded", staleness=4)}


def curves(cluster: Cluster, workers: Sequence[int]) -> dict[str, dict[int, Outcome]]:
    return {
        name: scaling_curve(strategy_for, cluster, workers, STEPS, SEED)
        for name, strategy_for in (strategies() | server_strategies(cluster)).items()
    }


def efficiency_rows(by_name: Mapping[str, Mapping[int, Outcome]]) -> list[Row]:
    rows: list[Row] = []
    for name, curve in by_name.items():
        last = pays_until(dict(curve), THRESHOLD)
        rows.append(
            {"strategy": name, **{str(count): 100 * outcome.efficiency for count, outcome in curve.items()}, "pays until": last or "-"}
        )
    return rows


def draw_efficiency(panels: Mapping[str, Mapping[str, Mapping[int, Outcome]]]) -> bytes:
    with drawing(columns=len(panels), inches=(9.2, 4.2)) as canvas:
        canvas.margin = 0.14
        for axes, (title, by_name) in zip(canvas.axes, panels.items(), strict=True):
            for number, (name, curve) in enumerate(by_name.items()):
                efficiencies = [100 * outcome.efficiency for outcome in curve.values()]
                style = ("-", "--", ":")[number // 5 % 3]
                axes.plot(list(curve), efficiencies, style, color=colour(number % 5), label=name)
            axes.axhline(100 * THRESHOLD, color="grey", linewidth=0.8)
            axes.set(xscale="log", title=title, xlabel="workers", ylim=(0, 102))
        canvas.axes[0].set_ylabel("efficiency, %")
        canvas.axes[0].legend(fontsize=7, ncols=7, loc="upper left", bbox_to_anchor=(-0.12, -0.14))
    return canvas.svg


CHECKPOINTS = CheckpointPlan(interval_seconds=300.0, pause_seconds=5.0)
MTBF_HOURS = [3_000, 6_000, 12_000, 25_000, 50_000, 100_000, 200_000]
"""Of a worker; Llama 3's were 50,700."""
WITH_SPARES = Faults(restart_seconds=720.0, workers_per_machine=8)
GROUPS: dict[str, tuple[int, Faults]] = {
    "1,024 workers": (1_024, WITH_SPARES),
    "4,096 workers": (4_096, WITH_SPARES),
    "16,384 workers": (16_384, WITH_SPARES),
    "16,384, no spares: waits": (16_384, replace(WITH_SPARES, spare_machines=0, repair_seconds=DAY / 4)),
    "16,384, no spares: shrinks": (
        16_384,
        replace(WITH_SPARES, spare_machines=0, repair_seconds=DAY / 4, is_elastic=True, resize_seconds=180.0),
    ),
}
"""A repair takes six hours, an assumption."""


def goodputs(days: float) -> dict[str, list[float]]:
    """For each group, the goodput at each of MTBF_HOURS."""
    return {
        name: [
            simulate_run(
                workers,
                equal_division(workers, 10.0),
                CHECKPOINTS,
                replace(faults, worker_mtbf_seconds=3_600.0 * hours),
                days * DAY,
                SEED,
            ).goodput
            for hours in MTBF_HOURS
        ]
        for name, (workers, faults) in GROUPS.items()
    }


def draw_goodput(by_group: Mapping[str, Sequence[float]]) -> bytes:
    with drawing(inches=(5.2, 3.4)) as canvas:
        (axes,) = canvas.axes
        for number, (name, values) in enumerate(by_group.items()):
            axes.plot(
                MTBF_HOURS,
                [100 * value for value in values],
                ("-", "--")[number > 2],
                color=colour(min(number, 2) if number < 3 else number),
                label=name,
            )
        axes.set(xscale="log", xlabel="hours between failures of a worker", ylabel="goodput, %", ylim=(0, 102))
        axes.legend(fontsize=7)
    return canvas.svg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="folder of the pictures")
    parser.add_argument("--small", action="store_true", help="few workers and days, to test that it runs")
    arguments = parser.parse_args()
    workers = WORKERS[:3] if arguments.small else WORKERS
    panels = {"400 Gbit/s for each of 8 GPUs": curves(FAST, workers), "25 Gbit/s for a machine of 8": curves(SLOW, workers)}
    for title, by_name in panels.items():
        show(f"efficiency in %, {title}; pays until {100 * THRESHOLD:.0f} %", efficiency_rows(by_name))
    by_group = goodputs(days=1 if arguments.small else 54)
    percent = {name: dict(zip(map(str, MTBF_HOURS), (100 * value for value in values), strict=True)) for name, values in by_group.items()}
    show("goodput in %, by hours between failures of a worker", [{"group": name, **values} for name, values in percent.items()])
    for name, svg in (("scaling-efficiency", draw_efficiency(panels)), ("scaling-goodput", draw_goodput(by_group))):
        file = arguments.pictures / f"{name}.svg"
        file.write_bytes(svg)
        print(f"{file}: {len(svg) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
