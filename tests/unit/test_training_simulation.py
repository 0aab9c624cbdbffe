"""The simulator against formulas, against its own conservation of seconds, and against published runs."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import erf, pi, sqrt
from typing import get_args

import numpy as np
import pytest
from torch.distributed.pipelining.schedules import _get_1f1b_rank_ops, _get_warmup_ops

from benchmarks.planning import horovod, llama
from pipelines.errors import ConfigError
from pipelines.planning.simulation.data_parallel import SimulatedDdp, SimulatedExact, partial_sums
from pipelines.planning.simulation.links import Network, NetworkLink, all_reduce_seconds, all_to_all_seconds
from pipelines.planning.simulation.model_parallel import SimulatedContext, SimulatedSharded, SimulatedTensor
from pipelines.planning.simulation.outcome import SimulatedStrategy
from pipelines.planning.simulation.parameter_servers import SimulatedServers, serve_in_order
from pipelines.planning.simulation.pipeline import Schedule, SimulatedPipeline, operation_orders
from pipelines.planning.simulation.rounds import SimulatedFederated, SimulatedLocalSgd
from pipelines.planning.simulation.scaling import pays_until, scaling_curve
from pipelines.planning.simulation.stragglers import SpeedVariation, step_factors
from pipelines.planning.simulation.training_run import CheckpointPlan, Faults, RunOutcome, best_interval, equal_division, simulate_run
from pipelines.planning.simulation.trees import SimulatedBoosting
from pipelines.planning.simulation.workload import Cluster, GradientBucket, Workload, even_buckets, fuse_layers
from pipelines.train.ordered_all_reduce import largest_nodes

WORKLOAD = Workload(1.0, 2.0, even_buckets(4e8, 4), optimizer_seconds=0.1, blocks=8, activation_bytes=1e7)
NETWORK = Network(NetworkLink(1e9, 1e-5), NetworkLink(1e10, 1e-6), workers_per_machine=4, machines_per_rack=2, oversubscription=2.0)
NOISY = SpeedVariation(worker_sigma=0.05, step_sigma=0.1, slow_share=0.25, slow_factor=1.5)
DAY = 24 * 3600.0
STRATEGIES: dict[str, SimulatedStrategy] = {
    "ddp": SimulatedDdp(),
    "ddp, hierarchical": SimulatedDdp("hierarchical"),
    "ddp, nothing overlaps": SimulatedDdp("tree", overlaps=False),
    "exact": SimulatedExact(shards=16),
    "exact, odd": SimulatedExact(shards=19),
    "sharded": SimulatedSharded(),
    "sharded, replicas": SimulatedSharded(replicas=4, prefetches=False),
    "sharded, gathered once": SimulatedSharded(reshards=False),
    "tensor": SimulatedTensor(4),
    "context": SimulatedContext(8, attention_share=0.3),
    **{schedule: SimulatedPipeline(4, 8, schedule) for schedule in get_args(Schedule)},
    "local_sgd": SimulatedLocalSgd(4, bytes_share=0.25),
    "local_sgd, alone": SimulatedLocalSgd(4, exchanges_numbers=False),
    "federated": SimulatedFederated(per_round=24, local_epochs=2, rows_sigma=0.7),
    "servers, sync": SimulatedServers(2, server=NetworkLink(1e9, 1e-5)),
    "servers, async": SimulatedServers(2, "async", server=NetworkLink(1e9, 1e-5)),
    "servers, bounded": SimulatedServers(2, "bounded", staleness=1, server=NetworkLink(1e9, 1e-5)),
    "boosting": SimulatedBoosting(leaves=31, inputs=100),
}
PIPELINES: tuple[Schedule, ...] = get_args(Schedule)


@pytest.mark.parametrize("name", STRATEGIES)
def test_seconds_by_cause_add_up_and_a_seed_decides_all(name: str) -> None:
    cluster = Cluster(16, NETWORK, NOISY)
    outcome = STRATEGIES[name].simulate(WORKLOAD, cluster, 4, seed=1)
    assert sum(outcome.by_cause.values()) == pytest.approx(outcome.seconds, rel=1e-9)
    assert all(seconds >= -1e-9 for seconds in outcome.by_cause.values())
    assert 0 < outcome.efficiency < 1
    assert STRATEGIES[name].simulate(WORKLOAD, cluster, 4, seed=1) == outcome
    assert STRATEGIES[name].simulate(WORKLOAD, cluster, 4, seed=2) != outcome


@pytest.mark.parametrize("name", [name for name in STRATEGIES if not {name} & {"tensor", "context", "federated", *PIPELINES}])
def test_a_worker_without_links_only_computes(name: str) -> None:
    strategy = replace(STRATEGIES[name], server=NetworkLink()) if "servers" in name else STRATEGIES[name]  # type: ignore[type-var]
    strategy = replace(strategy, replicas=1) if isinstance(strategy, SimulatedSharded) else strategy
    passes = strategy.shards if isinstance(strategy, SimulatedExact) else 1
    workload = replace(WORKLOAD, optimizer_seconds=0.0)
    outcome = strategy.simulate(workload, Cluster(1), 4, seed=0)
    assert outcome.step_seconds == pytest.approx(3.0 * passes)
    assert outcome.by_cause["compute"] == pytest.approx(outcome.seconds)


@pytest.mark.parametrize("name", STRATEGIES)
def test_equal_workers_with_ideal_links_scale_but_for_bubbles(name: str) -> None:
    strategy = replace(STRATEGIES[name], server=NetworkLink()) if "servers" in name else STRATEGIES[name]  # type: ignore[type-var]
    strategy = replace(strategy, rows_sigma=0.0, per_round=16) if isinstance(strategy, SimulatedFederated) else strategy
    strategy = replace(strategy, shards=16) if isinstance(strategy, SimulatedExact) else strategy
    outcome = strategy.simulate(replace(WORKLOAD, optimizer_seconds=0.0), Cluster(16), 4, seed=0)
    assert outcome.efficiency == pytest.approx(1 - outcome.by_cause["bubble"] / outcome.seconds)
    assert (outcome.by_cause["bubble"] > 0) == (name in PIPELINES)


@pytest.mark.parametrize("workers", [2, 8, 100, 16_384])
def test_a_ring_takes_its_closed_form(workers: int) -> None:
    network = Network(NetworkLink(1e9, 1e-5))
    expected = 2 * (workers - 1) * (1e-5 + 4e8 / workers / 1e9)
    assert all_reduce_seconds(4e8, workers, network) == pytest.approx(expected)
    bucket = Workload(1.0, 2.0, (GradientBucket(4e8),))
    assert SimulatedDdp().simulate(bucket, Cluster(workers, network), 2, 0).step_seconds == pytest.approx(3 + expected)
    assert SimulatedExact(workers).simulate(bucket, Cluster(workers, network), 2, 0).step_seconds == pytest.approx(3 + expected)


def test_early_buckets_hide_behind_the_backward_pass() -> None:
    """Two buckets of half a second each: the first is summed while the second is computed."""
    network, workload = Network(NetworkLink(1e9)), Workload(1.0, 2.0, (GradientBucket(5e8, 0.5), GradientBucket(5e8, 1.0)))
    assert SimulatedDdp().simulate(workload, Cluster(2, network), 1, 0).seconds == pytest.approx(3.5)
    assert SimulatedDdp(overlaps=False).simulate(workload, Cluster(2, network), 1, 0).seconds == pytest.approx(4.0)
    assert SimulatedDdp(bytes_share=0.5).simulate(workload, Cluster(2, network), 1, 0).seconds == pytest.approx(3.25)


def test_a_hierarchy_sends_fewer_bytes_between_machines_in_fewer_rounds() -> None:
    network = Network(NetworkLink(1e9, 1e-5), NetworkLink(), workers_per_machine=8)
    assert all_reduce_seconds(8e8, 64, network, "hierarchical") == pytest.approx(2 * 7 * 1e-5 + 2 * 7 / 8 * 0.8)
    assert all_reduce_seconds(8e8, 64, network, "tree") == pytest.approx(2 * 3 * 1e-5 + 2 * 0.8)
    assert all_reduce_seconds(8e8, 8, network, "tree") == 0


def test_an_oversubscribed_spine_slows_what_crosses_it() -> None:
    """Four racks of 4 machines: of what a machine sends to all, 12 parts of 15 leave the rack."""
    spine = Network(NetworkLink(1e9), machines_per_rack=4, oversubscription=4.0)
    assert all_reduce_seconds(1e9, 16, spine) == pytest.approx(2 * 15 / 16)
    assert all_reduce_seconds(1e9, 16, replace(spine, is_packed=False)) == pytest.approx(4 * 2 * 15 / 16)
    assert all_to_all_seconds(1e9, 16, spine) == pytest.approx(4 * 12 / 15)
    assert all_to_all_seconds(1e9, 4, spine) == pytest.approx(1.0)


@pytest.mark.parametrize(("shards", "workers"), [(8, 8), (8, 4), (8, 3), (13, 5), (64, 7)])
def test_exact_sends_the_partial_sums_that_the_strategy_sends(shards: int, workers: int) -> None:
    blocks = [range(rank * shards // workers, (rank + 1) * shards // workers) for rank in range(workers)]
    assert partial_sums(shards, workers) == [len(largest_nodes(block, shards)) for block in blocks]


def test_a_gather_hides_behind_the_block_before() -> None:
    """Eight blocks whose gather takes 0.05 s and computing 0.125 s forward: only the first gather and the last reduction are waited for."""
    network = Network(NetworkLink(1e9))
    outcome = SimulatedSharded().simulate(
        replace(WORKLOAD, optimizer_seconds=0.0, buckets=(GradientBucket(8e8),)), Cluster(2, network), 1, 0
    )
    assert outcome.seconds == pytest.approx(3 + 2 * 0.05)
    gathered_late = SimulatedSharded(prefetches=False).simulate(
        replace(WORKLOAD, optimizer_seconds=0.0, buckets=(GradientBucket(8e8),)), Cluster(2, network), 1, 0
    )
    assert gathered_late.seconds == pytest.approx(3 + 16 * 0.05 + 0.05), "other reductions hide behind the next block"


@pytest.mark.parametrize(("degree", "microbatches"), [(2, 2), (4, 8), (4, 32), (16, 32)])
def test_bubbles_have_their_published_sizes(degree: int, microbatches: int) -> None:
    """(p - 1) / (m + p - 1) for 1F1B (Narayanan et al. 2021), with twice the m where each worker has two stages; less with zero bubble."""
    shares = {}
    for schedule in PIPELINES:
        outcome = SimulatedPipeline(degree, microbatches, schedule).simulate(Workload(1.0, 2.0), Cluster(degree), 1, 0)
        shares[schedule] = outcome.by_cause["bubble"] / outcome.seconds
    assert shares["1F1B"] == pytest.approx((degree - 1) / (microbatches + degree - 1))
    assert shares["Interleaved1F1B"] == pytest.approx((degree - 1) / (2 * microbatches + degree - 1))
    assert shares["ZBVZeroBubble"] <= shares["InterleavedZeroBubble"] < shares["Interleaved1F1B"]


@pytest.mark.parametrize("schedule", PIPELINES)
def test_a_schedule_computes_everything_once(schedule: str) -> None:
    orders = operation_orders(schedule, 4, 8)  # type: ignore[arg-type]
    kinds = ("forward", "backward") if "1F1B" in schedule else ("forward", "inputs", "parameters")
    stages = 4 if schedule == "1F1B" else 8
    expected = sorted((kind, stage, number) for kind in kinds for stage in range(stages) for number in range(8))
    assert sorted(operation for order in orders for operation in order) == expected


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(("schedule", "stages", "factor"), [("1F1B", 1, 1), ("Interleaved1F1B", 2, 2)])
def test_a_schedule_has_torch_s_order(schedule: str, stages: int, factor: int, place: int) -> None:
    degree, microbatches = 4, 12
    warm_up = _get_warmup_ops(place, stages, degree, degree, microbatches, factor)

    def forward_stage(step: int) -> int:
        return step // degree % stages * degree + place

    def backward_stage(step: int) -> int:
        return (stages - 1 - (step - warm_up) // degree % stages) * degree + place

    turns = stages * microbatches - warm_up
    torch_actions = _get_1f1b_rank_ops(stages, degree, warm_up, turns, warm_up, place, forward_stage, backward_stage)
    kinds = {"FORWARD": "forward", "FULL_BACKWARD": "backward"}
    expected = [(kinds[action.computation_type.name], action.stage_index, action.microbatch_index) for action in torch_actions if action]
    assert operation_orders(schedule, degree, microbatches)[place] == expected  # type: ignore[arg-type]


def mean_lognormal_maximum(sigma: float, workers: int) -> float:
    """Mean of the largest of `workers` lognormal factors, by the integral of 1 - F(x) to the power of `workers`."""
    z = np.linspace(-8.0, 8.0, 8_001)
    below = np.array([(1 + erf(value / sqrt(2))) / 2 for value in z])
    density = workers * below ** (workers - 1) * np.exp(-(z**2) / 2) / sqrt(2 * pi)
    return float(np.trapezoid(np.exp(sigma * z) * density, z))


@pytest.mark.parametrize("workers", [1, 16, 512])
def test_a_step_waits_for_the_expected_maximum_of_its_workers(workers: int) -> None:
    noise = SpeedVariation(step_sigma=0.1)
    measured = SimulatedDdp().simulate(Workload(1.0, 2.0), Cluster(workers, stragglers=noise), 2_000, 0).step_seconds / 3
    assert measured == pytest.approx(mean_lognormal_maximum(0.1, workers), rel=0.005)
    maxima = [step_factors(noise, workers, 1, step).max() for step in range(2_000)]
    assert float(np.mean(maxima)) == pytest.approx(mean_lognormal_maximum(0.1, workers), rel=0.005)


def test_local_steps_average_what_synchronous_steps_wait_for() -> None:
    cluster = Cluster(64, stragglers=SpeedVariation(step_sigma=0.2))
    waits = [
        SimulatedLocalSgd(16, exchanges_numbers=exchanges).simulate(WORKLOAD, cluster, 64, 0).by_cause["stragglers"]
        for exchanges in (True, False)
    ]
    assert waits[1] == pytest.approx(waits[0] / sqrt(16), rel=0.2)


def test_servers_take_messages_one_after_the_other() -> None:
    arrivals = np.array([0.0, 0.1, 5.0, 5.0])
    ends = [0.0]
    for arrival in arrivals:
        ends.append(max(ends[-1], arrival) + 1.0)
    assert serve_in_order(arrivals, 1.0).tolist() == ends[1:]
    workload = Workload(1.0, 2.0, (GradientBucket(1e9),))
    outcome = SimulatedServers(2, server=NetworkLink(1e9)).simulate(workload, Cluster(8), 1, 0)
    assert outcome.seconds == pytest.approx(0.5 * 8 + 3 + 0.5), "the last pull, then its own microbatch and push"


def test_only_asynchronous_servers_do_not_wait_for_a_slow_worker() -> None:
    cluster = Cluster(4, stragglers=SpeedVariation(slow_share=0.25, slow_factor=4.0))
    rates = {mode: SimulatedServers(2, mode, staleness=4).simulate(WORKLOAD, cluster, 100, 0) for mode in ("sync", "async", "bounded")}
    assert rates["sync"].efficiency == pytest.approx(0.25, rel=0.05)
    assert rates["async"].efficiency == pytest.approx((3 + 0.25) / 4, rel=0.05)
    assert rates["bounded"].efficiency == pytest.approx(rates["async"].efficiency, rel=0.05)
    assert rates["async"].details["staleness_updates"] > 2


def test_bounded_servers_without_staleness_are_synchronous() -> None:
    cluster = Cluster(8, stragglers=SpeedVariation(worker_sigma=0.5))
    workload = Workload(1.0, 2.0)
    bounded = SimulatedServers(1, "bounded", staleness=0).simulate(workload, cluster, 5, 3)
    sync = SimulatedServers(1).simulate(workload, cluster, 5, 3)
    assert bounded.seconds >= sync.seconds * 0.999


def run(faults: Faults, interval: float = 600.0, pause: float = 10.0, write: float = 0.0, days: float = 54, seed: int = 0) -> RunOutcome:
    return simulate_run(16_384, equal_division(16_384, 10.0), CheckpointPlan(interval, pause, write), faults, days * DAY, seed)


@pytest.mark.parametrize("spares", [0, 3, 10**9])
@pytest.mark.parametrize("is_elastic", [False, True])
def test_seconds_of_a_run_add_up(spares: int, is_elastic: bool) -> None:
    faults = Faults(16_384 * DAY / 5, 600, 2 * DAY, 1_800, 8, spares, DAY, is_elastic, 300)
    outcome = run(faults, write=200)
    assert sum(outcome.by_cause.values()) == pytest.approx(outcome.seconds, rel=1e-9)
    assert outcome.seconds == 54 * DAY
    assert all(seconds >= 0 for seconds in outcome.by_cause.values())
    assert outcome == run(faults, write=200)
    waits = not is_elastic and spares < 10**9
    assert outcome.failures < 200 if waits else outcome.failures == pytest.approx(270, rel=0.2)
    assert outcome.planned <= 26 if waits else outcome.planned == 26, "what is due while a group waits is done then"
    assert (outcome.resizes > 0) == (is_elastic and spares < 10**9)
    assert (outcome.by_cause["idle"] > 0) == waits
    assert (outcome.mean_workers < 16_383.9) == (outcome.resizes > 0)


def test_a_run_without_faults_only_pauses_for_checkpoints() -> None:
    outcome = run(Faults(), interval=990.0)
    assert outcome.by_cause["checkpoint"] == pytest.approx(0.01 * outcome.seconds, rel=1e-3)
    assert outcome.steps == pytest.approx(0.99 * 54 * DAY / 10, rel=1e-3)
    assert outcome.goodput == pytest.approx(outcome.effective_time)
    assert outcome.failures == 0


def test_what_a_failure_loses_is_half_an_interval_and_what_was_being_written() -> None:
    interval, mtbf = 600.0, 3_600.0
    times = np.arange(0, 20 * mtbf, 1.0) + 0.5
    for write in (0.0, 300.0):
        outcome = run(Faults(16_384 * mtbf), interval, pause=0.0, write=write)
        # What is lost a time after the last start, by the density of exponential times.
        losses = np.where(times < write, times, (times - write) % interval + write)
        expected = np.sum(losses * np.exp(-times / mtbf) / mtbf)
        assert outcome.by_cause["lost_work"] / outcome.failures == pytest.approx(expected, rel=0.03)
        assert expected == pytest.approx(interval / 2 + write, rel=0.1), "as long as failures are rare"


def test_the_best_interval_is_young_s() -> None:
    """Mean over seeds; the optimum is flat, so its place is where the loss begins to grow on either side."""
    pause, mtbf = 30.0, 3 * 3_600.0
    best = best_interval(pause, mtbf)
    assert best == pytest.approx(sqrt(2 * pause * mtbf))
    factors = (0.25, 0.5, 1.0, 2.0, 4.0)
    losses = [
        1 - np.mean([run(Faults(16_384 * mtbf), interval=best * factor, pause=pause, seed=seed).effective_time for seed in range(4)])
        for factor in factors
    ]
    assert min(losses) == losses[2]
    assert losses[2] == pytest.approx(sqrt(2 * pause / mtbf), rel=0.1), "the loss to first order"
    assert all(first > second for first, second in pairwise(losses[:3]))
    assert all(first < second for first, second in pairwise(losses[2:]))


def test_a_smaller_group_takes_longer_for_the_same_batch() -> None:
    assert equal_division(8, 10.0, 2.0)(4) == pytest.approx(18.0)
    faults = Faults(16_384 * DAY, 0, workers_per_machine=4_096, spare_machines=0, repair_seconds=10**9, is_elastic=True)
    outcome = run(faults, days=3, pause=0.0)
    assert outcome.steps * 10.0 * 16_384 == pytest.approx(outcome.mean_workers * outcome.by_cause["training"])


@pytest.mark.parametrize(("model", "gpus"), horovod.PUBLISHED)
def test_horovod_s_published_efficiencies_are_met_within_ten_points(model: str, gpus: int) -> None:
    assert horovod.simulate(model, gpus).efficiency == pytest.approx(horovod.PUBLISHED[model, gpus], abs=0.10)


@pytest.mark.parametrize(("layers", "parameters"), [(horovod.vgg_16_layers, 138.36e6), (horovod.resnet_101_layers, 44.55e6)])
def test_the_published_models_have_their_parameters(layers: object, parameters: float) -> None:
    assert sum(count for count, _ in layers()) == pytest.approx(parameters, rel=0.001)  # type: ignore[operator]


def test_llama_s_published_goodput_is_met_within_five_points() -> None:
    outcomes = [llama.simulate(seed) for seed in range(3)]
    assert all(outcome.goodput == pytest.approx(llama.PUBLISHED, abs=0.05) for outcome in outcomes)
    assert all(outcome.planned == llama.PLANNED for outcome in outcomes)
    assert np.mean([outcome.failures for outcome in outcomes]) == pytest.approx(llama.UNEXPECTED, rel=0.05)


def test_fewer_rows_for_each_worker_stop_paying() -> None:
    workload = Workload(100.0, 200.0, even_buckets(4e8, 8))
    counts = [2**power for power in range(10)]
    curve = scaling_curve(lambda workers: (SimulatedDdp(), workload.scale_rows(1 / workers)), Cluster(1, NETWORK), counts, 1, 0)
    assert curve[1].efficiency == pytest.approx(1)
    assert pays_until(curve, 0.8) == 256
    assert curve[512].efficiency < 0.8 < curve[256].efficiency < curve[128].efficiency
    assert pays_until(curve, 1.1) is None


def test_too_few_cores_make_all_workers_slower() -> None:
    times = [SimulatedDdp().simulate(WORKLOAD, Cluster(4, workers_per_core=share), 1, 0).seconds for share in (0.5, 1.0, 2.0)]
    assert times == pytest.approx([3.1, 3.1, 6.2])


def test_buckets_are_filled_as_the_backward_pass_goes_on() -> None:
    assert fuse_layers([(3, 1), (3, 1), (9, 1), (2, 1)], 6) == (GradientBucket(6, 0.5), GradientBucket(9, 0.75), GradientBucket(2, 1.0))


REFUSED: list[tuple[Callable[[], object], Callable[[], object]]] = [
    (lambda: NetworkLink(0.0), lambda: NetworkLink(1.0)),
    (lambda: Network(workers_per_machine=0), lambda: Network(workers_per_machine=1)),
    (lambda: SpeedVariation(slow_share=2), lambda: SpeedVariation(slow_share=1)),
    (
        lambda: Workload(1.0, 1.0, (GradientBucket(1, 0.5), GradientBucket(1, 0.2))),
        lambda: Workload(1.0, 1.0, (GradientBucket(1, 0.2), GradientBucket(1, 0.5))),
    ),
    (lambda: Cluster(0), lambda: Cluster(1)),
    (lambda: CheckpointPlan(0.0, 1.0), lambda: CheckpointPlan(1.0, 1.0)),
    (lambda: Faults(0.0), lambda: Faults(1.0)),
    (lambda: SimulatedServers(0), lambda: SimulatedServers(1)),
    (lambda: SimulatedExact(2).simulate(WORKLOAD, Cluster(3), 1, 0), lambda: SimulatedExact(2).simulate(WORKLOAD, Cluster(2), 1, 0)),
    (lambda: SimulatedTensor(3).simulate(WORKLOAD, Cluster(4), 1, 0), lambda: SimulatedTensor(3).simulate(WORKLOAD, Cluster(6), 1, 0)),
    (lambda: SimulatedLocalSgd(0).simulate(WORKLOAD, Cluster(4), 1, 0), lambda: SimulatedLocalSgd(1).simulate(WORKLOAD, Cluster(4), 1, 0)),
    (
        lambda: SimulatedFederated(2).simulate(WORKLOAD, Cluster(4), 1, 0),
        lambda: SimulatedFederated(4).simulate(WORKLOAD, Cluster(4), 1, 0),
    ),
    (lambda: operation_orders("Interleaved1F1B", 4, 6), lambda: operation_orders("Interleaved1F1B", 4, 8)),
    (lambda: run(Faults(workers_per_machine=3), days=0.01), lambda: run(Faults(workers_per_machine=4), days=0.01)),
]
"""What is refused, and the same with the remedy of the message."""


@pytest.mark.parametrize(("build", "mend"), REFUSED)
def test_impossible_numbers_are_refused_with_a_remedy_that_works(build: Callable[[], object], mend: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=r"; (set|reduce|raise|sort)|: set|raise per_round"):
        build()
    mend()
