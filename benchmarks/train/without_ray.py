"""Our training loop under a plain torchrun, without MLflow. The difference from a whole run is the cost of Ray and tracking.

    torchrun --nproc-per-node 2 -m benchmarks.train.without_ray CASE THREADS FOLDER [small]

It prints points like the bare script.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.train.cases import WORKERS, case_config, find_case, write_version
from pipelines.data.versions.versions import open_version
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext


class Printed(Hooks):
    def log(self, step: int, metrics: dict[str, float]) -> None:
        print("point", time.time(), step, flush=True)


def main() -> None:
    case, threads, folder = find_case(sys.argv[1], small="small" in sys.argv), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(threads)
    dist.init_process_group("gloo")
    context, config = WorkerContext(dist.get_rank(), WORKERS), case_config(case, folder)
    if context.rank == 0:
        write_version(case, config)
    dist.barrier()
    version = open_version(config.dataset.path)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    checkpoints = Checkpoints(RunDirectory(config.train.storage), context, config.train.checkpoint.keep)
    Loop(config, version, task, strategy, checkpoints, Printed()).run()


if __name__ == "__main__":
    main()
