"""A bare DDP script on tensors in memory, as one would write it by hand, to measure ours against.

    torchrun --nproc-per-node 2 -m benchmarks.train.bare CASE THREADS [small]

It uses the task's model and the same optimizer; batches are slices of shuffled tensors. It runs for longer than is measured,
and prints points: the time, in seconds since 1970, and the number of steps done.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Adam

from benchmarks.train.cases import WORKERS, case_config, find_case, random_tensors
from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.base import Data, Task
from pipelines.tasks.tabular import Tabular
from pipelines.tasks.vision import Vision

STEPS_PER_POINT = 4


def main() -> None:
    case = find_case(sys.argv[1], small="small" in sys.argv)
    torch.set_num_threads(int(sys.argv[2]))
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    columns = [TensorColumn(name=name, dtype=case.dtype, shape=case.shape) for name in case.names]
    target = TensorColumn(name="label", dtype="int64", role="target", cardinality=10)
    kind: type[Task] = Vision if case.task["kind"] == "vision" else Tabular
    task = kind(case_config(case, Path()).task, Data((*columns, target), tuple("0123456789")))
    model = DistributedDataParallel(task.model(), gradient_as_bucket_view=True)
    optimizer = Adam(model.parameters(), lr=1e-3, fused=True)
    rows = {name: values[rank::WORKERS].contiguous() for name, values in random_tensors(case).items()}
    local = case.global_batch // WORKERS
    batches = len(rows["label"]) // local
    for step in range(2 * (case.warm_up + case.steps)):
        if rank == 0 and step % STEPS_PER_POINT == 0:
            print("point", time.time(), step, flush=True)
        at = step % batches * local
        batch = {name: values[at : at + local] for name, values in rows.items()}
        loss = functional.cross_entropy(model(batch), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
