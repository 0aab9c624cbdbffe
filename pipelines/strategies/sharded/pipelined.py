"""Strategy `sharded` with a pipeline: workers compute consecutive stages of the model, and pass microbatches on to each other.

The workers of a pipeline read the same rows. Torch's schedules decide when a worker computes which microbatch, forward and backward.
Within a stage, parameters, gradients and optimizer state are spread over data-parallel workers as without a pipeline.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipelines.config.train.train import Train
from pipelines.data.versions.versions import Version
from pipelines.strategies.sharded.parameter_shards import allocate, fill, parameter_device, parameters_and_buffers, skeleton
from pipelines.strategies.sharded.sharded import SpreadModel, check_spread
from pipelines.strategies.sharded.stages import Pipeline, broadcast_from, check_stages, microbatches_per_step
from pipelines.strategies.sharded.tensor_and_context import data_parallel
from pipelines.tasks.base import Batch, Task, row_count
from pipelines.train.buffers import ModelBuffers
from pipelines.train.dtensor import full_tensor
from pipelines.train.optimizers import Update
from pipelines.train.passes import seed, split
from pipelines.train.step_clock import EXCHANGE, OTHER
from pipelines.train.step_statistics import Flags, StepResult, gather_replicas
from pipelines.train.workers import WorkerContext


class Microbatches:
    """Microbatches of a constant number of rows. Copies of an earlier row fill them up."""

    def __init__(self, count: int, largest_step: int) -> None:
        """`largest_step` is the greatest number of rows of a step."""
        self.count = count
        self.rows = -(-largest_step // count)
        self._spare_row: Batch = {}

    def divide_step(self, batch: Batch) -> Iterator[tuple[Batch, Batch]]:
        """Divide a step's rows. Yields each microbatch, and its rows that count: the first ones, perhaps none."""
        self._keep_spare_row(batch)
        for number in range(self.count):
            counted = {name: values[number * self.rows : (number + 1) * self.rows] for name, values in batch.items()}
            yield self._fill(counted, self.rows), counted

    def divide_evenly(self, batch: Batch) -> list[Batch]:
        """Divide rows into microbatches as equal as possible; one without rows has a spare row."""
        self._keep_spare_row(batch)
        return [self._fill(part, max(1, row_count(part))) for part in split(batch, self.count)]

    def _keep_spare_row(self, batch: Batch) -> None:
        if row_count(batch):
            self._spare_row = {name: values[:1].clone() for name, values in batch.items()}
        elif not self._spare_row:
            self._spare_row = {name: values.new_zeros(1, *values.shape[1:]) for name, values in batch.items()}

    def _fill(self, part: Batch, rows: int) -> Batch:
        missing = rows - row_count(part)
        if not missing:
            return part
        return {name: torch.cat([values, self._spare_row[name].expand(missing, *values.shape[1:])]) for name, values in part.items()}


class Pipelined(SpreadModel):
    """As `ddp`, gradients are divided by the weight of the global batch. All microbatches have equally many rows: where there are
    fewer, others are computed too, which do not count."""

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        super().__init__(settings, task, build, context)
        self._all_tensors = parameters_and_buffers(self.model)
        self._saved, self._parameters = list(self.model.state_dict()), [name for name, _ in self.model.named_parameters()]
        self._pipeline = Pipeline(settings, task, self.model, self._precision, self._devices, context.device)
        allocate(self.model, context.device, parameter_device(self._spread, context.device))
        fill(self.model, parameters_and_buffers(build()) if context.rank == 0 else {}, context, self._all_tensors)
        self._update = Update(settings, self.model, context, self._precision, self.clock, self._pipeline.group, clips_alike=True)
        self._buffers = ModelBuffers(self.model)
        rows = settings.global_batch // settings.shards * len(self.mesh.worker_shards(settings.shards))
        self._microbatches = Microbatches(microbatches_per_step(settings, context.world_size), rows)
        self._counted: list[Batch] = []
        """The rows of each microbatch that count."""
        self._sums = torch.zeros(self._microbatches.count, 2, dtype=torch.float64, device=context.device)
        """Sum of losses and weight of each microbatch, where the last stage is."""
        self._counts = context.rank % (self._degrees.context * self._degrees.tensor) == 0
        """Whether this worker counts rows: the first of those that compute a stage together does."""
        self._run = self._pipeline.schedule(self._microbatches.count, self._loss)

    @classmethod
    def check(cls, settings: Train, task: Task, version: Version) -> None:
        model = skeleton(task)
        check_spread(settings, task, model)
        check_stages(settings, task, model)

    def step(self, batch: Batch, number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        seed(self._context.device, self._settings.seed, number, self.mesh.replica, self._pipeline.place, *self._tokens.place)
        if not self.model.training:
            self.model.train()
        microbatches = list(self._microbatches.divide_step(batch))
        self._counted = [counted for _, counted in microbatches]
        self._sums.zero_()
        self.clock.enter(OTHER)  # passes alternate with waiting for neighbours, and are not separated
        self._run([rows for rows, _ in microbatches])
        rows = row_count(batch) if self._pipeline.place == 0 else 0
        worker_sums = torch.cat([self._sums.sum(0), self._sums.new_full((1,), rows)])
        if not self._counts:
            worker_sums.zero_()
        self.clock.enter(EXCHANGE)
        replica, replicas = self.mesh.replica, self.mesh.replicas
        by_replica, flag_counts = gather_replicas(worker_sums.unsqueeze(0), range(replica, replica + 1), replicas, flags)
        loss_sum, weight, total_rows = by_replica.sum(0)
        norm = self._update.apply(rate, weight, compute_grad_norm)
        return StepResult(norm, by_replica[replica, 0], loss_sum, weight, total_rows, flag_counts)

    def _loss(self, output: Tensor, number: Tensor) -> Tensor:
        """The tensor from which a microbatch's backward pass starts, given the last stage's output."""
        counted = self._counted[int(number)]
        rows = row_count(counted)
        if not rows:
            return output[:0].sum()
        with self._precision.autocast(self._context.device.type):
            loss, weight = self._task.loss(_FixedOutput(output[:rows]), counted)
        self._sums[int(number)] = torch.stack([loss.detach().double(), weight.detach().double()])
        return self._update.scale_loss(loss)

    @torch.no_grad()
    def predict(self, batch: Batch) -> Tensor:
        self.model.eval()
        outputs = torch.cat(self._pipeline.outputs(self._microbatches.divide_evenly(batch)))
        if not row_count(batch):
            return torch.empty(0)
        return broadcast_from(outputs[: row_count(batch)], self._pipeline.last_place, self._pipeline.group, self._context.device)

    def sample(self, epoch: int) -> str:
        """Rank 0 writes it on its CPU, with the gathered model: a text is written token by token, for which stages would wait."""
        if not self._task.samples:
            return ""
        weights = self.weights()
        if self._context.rank:
            return ""
        model = skeleton(self._task)
        model.load_state_dict(weights, assign=True)
        with torch.no_grad():
            return self._task.sample(model.eval(), epoch)

    def sync_buffers(self) -> None:
        for group in data_parallel(self._devices).get_all_groups():
            self._buffers.average(group.size(), group)

    def state_dict(self) -> dict[str, Any]:
        """As that of `ddp`, but with the tensors of this worker's stages only: DCP puts those of all workers together."""
        state = super().state_dict()
        for group in state["optimizer"]["param_groups"]:
            group["params"] = self._parameters
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        groups = state["optimizer"]["param_groups"]
        local_groups = [{**group, "params": [name for name in group["params"] if name in state["model"]]} for group in groups]
        super().load_state_dict({**state, "optimizer": {**state["optimizer"], "param_groups": local_groups}})

    def weights(self) -> dict[str, Tensor]:
        local_state, weights, group = self.model.state_dict(), {}, self._pipeline.group
        meets_rank_0 = 0 in dist.get_process_group_ranks(group)
        for name in self._saved:
            place = self._pipeline.holder.get(name, 0)
            tensor = full_tensor(local_state[name]).detach().contiguous() if place == self._pipeline.place else None
            if not meets_rank_0:
                continue
            if tensor is not None and self._pipeline.place:
                dist.send(tensor, dst=0, group=group)
            if self._context.rank == 0:
                if tensor is None:
                    tensor = torch.empty(self._all_tensors[name].shape, dtype=self._all_tensors[name].dtype, device=self._context.device)
                    dist.recv(tensor, group=group, group_src=place)
                weights[name] = tensor.cpu().clone()
        return weights


class _FixedOutput(nn.Module):
    """A model whose output for a batch is known."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self._output = output

    def forward(self, batch: Batch) -> Tensor:
        return self._output
