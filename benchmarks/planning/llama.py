"""Llama 3 405B's 54 days on 16,384 H100: the scenario, with the source of every number, and what the simulator says.

    python -m benchmarks.planning.llama

Section 3.3.4 of "The Llama 3 Herd of Models" (arXiv 2407.21783) states: 54 days, 466 interruptions, of which 47 planned and 419 unexpected,
and more than 90 % effective training time. It states neither how often a checkpoint was saved nor how long a restart took; both are
assumed below, and varied in the second table.
"""

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.report import Row, show
from pipelines.planning.simulation.training_run import CheckpointPlan, Faults, RunOutcome, best_interval, equal_division, simulate_run

DAY = 24 * 3600.0
GPUS, DAYS, PLANNED, UNEXPECTED = 16_384, 54, 47, 419
PUBLISHED = 0.90
"""Effective training time; the paper says more than this."""
STEP_SECONDS = 15.0
"""16 M tokens of 6 * 405e9 operations each at 400 TFLOP/s a GPU, as table 4 of the paper has; it decides nothing here."""
STATE_BYTES = 405e9 * (2 + 4 + 4 + 4)
"""Parameters in bf16; a copy and both moments of AdamW in fp32."""
STORE_BYTES_PER_SECOND = 2e12
"""The paper's section 3.3.1: 2 TB/s sustained."""
CHECKPOINTS = CheckpointPlan(
    # An assumption: training pauses until all is written, as with a store that bursts; the paper says only that pauses were reduced.
    pause_seconds=STATE_BYTES / STORE_BYTES_PER_SECOND,
    # An assumption, near Young's best for that pause and a failure in three hours: 4 minutes.
    interval_seconds=300.0,
)
FAULTS = Faults(
    worker_mtbf_seconds=GPUS * DAYS * DAY / UNEXPECTED,
    # An assumption, from MegaScale (Jiang et al., NSDI 2024, section 6.3), at 12,288 GPUs: less than 10 minutes to notice and to diagnose,
    # and to be back where training was, within 15 minutes from the latest checkpoint.
    restart_seconds=720.0,
    planned_interval_seconds=DAYS * DAY / (PLANNED + 1),
    # An assumption: maintenance of a part of the cluster is a restart that nobody has to diagnose, and a few minutes for the firmware.
    planned_seconds=900.0,
    workers_per_machine=8,
)
SEEDS = range(10)


def simulate(seed: int, checkpoints: CheckpointPlan = CHECKPOINTS, faults: Faults = FAULTS) -> RunOutcome:
    return simulate_run(GPUS, equal_division(GPUS, STEP_SECONDS), checkpoints, faults, DAYS * DAY, seed)


def seed_rows() -> Iterator[Row]:
    for seed in SEEDS:
        outcome = simulate(seed)
        shares = {f"{cause}, %": 100 * seconds / outcome.seconds for cause, seconds in outcome.by_cause.items() if seconds}
        yield {"seed": seed, "unexpected": outcome.failures, "planned": outcome.planned, "goodput, %": 100 * outcome.goodput, **shares}


def assumption_rows() -> Iterator[Row]:
    for restart_minutes in (5, 10, 12, 15, 20, 30):
        faults = replace(FAULTS, restart_seconds=60.0 * restart_minutes)
        goodputs = {
            f"every {minutes} min, %": 100 * mean_goodput(replace(CHECKPOINTS, interval_seconds=60.0 * minutes), faults)
            for minutes in (2, 5, 10, 30, 60)
        }
        yield {"restart, min": restart_minutes, **goodputs}


def mean_goodput(checkpoints: CheckpointPlan, faults: Faults) -> float:
    goodputs = [simulate(seed, checkpoints, faults).goodput for seed in SEEDS[:3]]
    return sum(goodputs) / len(goodputs)


if __name__ == "__main__":
    show(f"54 days, published: more than {100 * PUBLISHED:.0f} %", list(seed_rows()))
    show("goodput by assumption: minutes between checkpoints, and of a restart", list(assumption_rows()))
    best = best_interval(CHECKPOINTS.pause_seconds, DAYS * DAY / UNEXPECTED)
    print(f"\nbest interval of Young: {best / 60:.1f} min for a pause of {CHECKPOINTS.pause_seconds:.1f} s")
