"""Strategy `exact`: weights that are a pure function of dataset and config, bit for bit, for any number of workers.

The unit of computation is the shard, whichever worker owns it: one pass over its microbatch, from the same buffers, with
randomness of its own, on a fixed number of threads, with deterministic kernels. It gives gradients and, beside them, a
vector of sums and of changes of buffers. The shards' gradients and vectors are summed in a fixed tree, bucket by
bucket while the last pass goes on, and every worker takes the same step.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pipelines.collectives.context import WorkerContext
from pipelines.config.train import Train
from pipelines.loader import Loader
from pipelines.parallel.batch_norm import loss_of
from pipelines.parallel.buffers import ModelBuffers
from pipelines.parallel.deterministic import check_model, check_passes, only_deterministic
from pipelines.parallel.gradient_reducer import GradientReducer
from pipelines.parallel.mesh import owned_shards
from pipelines.parallel.precision import precision_of
from pipelines.parallel.randomness import seed
from pipelines.parallel.update import Update
from pipelines.tasks.base import Batch, Task


class Exact:
    """One pass per shard; a fixed binary tree over the shards' gradients.

    Raises ConfigError for a model, or before the first step for a kernel, that has no deterministic form.
    """

    def __init__(self, settings: Train, task: Task, model: nn.Module, context: WorkerContext) -> None:
        check_model(model)
        only_deterministic(context.device)
        torch.set_num_threads(settings.threads_per_shard)
        self._settings, self._task, self._context = settings, task, context
        self._precision = precision_of(settings.precision, context.device)
        self.model = model.to(context.device)
        if settings.compile:
            # For shapes as they are: which shapes came first would decide how a kernel for all of them adds.
            self.model.compile(dynamic=False)
        self._update = Update(settings, self.model, context, self._precision)
        self._owned = owned_shards(context, settings.shards)
        self._buffers = ModelBuffers(self.model)
        self._gradients: GradientReducer | None = None
        """Made at the first step, whose votes it has to have room for."""

    def batches(self, loader: Loader) -> Iterator[list[Batch]]:
        """Each step's microbatches, one for each shard that this worker owns."""
        return map(loader.by_shard, loader)

    def step(self, batch: list[Batch], number: int, rate: float, votes: Sequence[float], measured: bool = True) -> Tensor:
        if not self.model.training:
            self.model.train()
        before = self._buffers.clones()
        gradients = self._gradients or self._begun(batch, before, len(votes))
        own_loss = torch.zeros((), dtype=torch.float64, device=self._context.device)
        # Whole numbers: their sum is the same in any order, so that one shard can carry the worker's.
        votes_left = torch.tensor(votes, dtype=torch.float64).to(self._context.device, non_blocking=True)
        for shard, microbatch in zip(self._owned, batch, strict=True):
            self._buffers.restore(before)
            seed(self._context.device, self._settings.seed, number, shard)
            gradients.begin()
            sums = self._pass(microbatch, gradients)
            own_loss += sums[0]
            gradients.end(torch.cat([sums, votes_left, *self._buffers.changes(before)]))
            votes_left = torch.zeros_like(votes_left)
        sums_of_all = gradients.wait()
        self._buffers.move(before, sums_of_all[4 + len(votes) :] / sums_of_all[3].clamp(min=1))  # the mean over shards that had rows
        norm = self._update.apply(rate, sums_of_all[1], measured)
        return torch.cat([torch.stack([norm.double(), own_loss]), sums_of_all[:3], sums_of_all[4 : 4 + len(votes)]])

    def predict(self, batch: Batch) -> Tensor:
        return self._update.predict(_aligned(batch))

    def sync_buffers(self) -> None:
        """Nothing to do, buffers are equal after every step. Raises ConfigError if one is another tensor than at the start."""
        self._buffers.check_in_place()

    def state_dict(self) -> dict[str, Any]:
        return self._update.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._update.load_state_dict(state)

    def _begun(self, batch: list[Batch], before: list[Tensor], votes: int) -> GradientReducer:
        """What the first step needs more than others. Raises ConfigError if two passes over the same rows differ, or if one
        replaces a buffer."""
        microbatch = next((microbatch for microbatch in batch if _rows(microbatch)), None)
        if microbatch is not None:
            check_passes(self.model, lambda: self._rehearsed(microbatch, before))
            self._buffers.restore(before)
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        owned = [
            owned_shards(WorkerContext(rank, self._context.world_size), self._settings.shards) for rank in range(self._context.world_size)
        ]
        beside = 4 + votes + self._buffers.numel
        self._gradients = GradientReducer(trained, beside, owned, self._context.rank, self._settings.shards)
        return self._gradients

    def _rehearsed(self, microbatch: Batch, before: list[Tensor]) -> Tensor:
        self._buffers.restore(before)
        seed(self._context.device, self._settings.seed)
        sums = self._pass(microbatch)
        self._buffers.check_in_place()
        return sums

    def _pass(self, microbatch: Batch, gradients: GradientReducer | None = None) -> Tensor:
        """Backward over a shard's rows. Returns float64 of shape (4,): loss, weight, rows, and whether there were any."""
        sums = torch.zeros(2, dtype=torch.float64, device=self._context.device)
        rows = _rows(microbatch)
        parts = min(self._settings.accumulate, rows)
        for part in range(parts):
            passed = _aligned({name: values.tensor_split(parts)[part] for name, values in microbatch.items()})
            with self._precision.autocast(self._context.device.type):
                loss, weight = loss_of(self._task, self.model, passed)
            sums += torch.stack([loss.detach().double(), weight.detach().double()])
            if gradients is not None and part == parts - 1:
                gradients.last_pass()
            self._update.backward(loss / self._settings.global_batch)
        return torch.cat([sums, sums.new_tensor([rows, rows > 0])])


def _aligned(batch: Batch) -> Batch:
    """Copied out of what others' rows lie in too: a kernel may add in another order when memory is aligned in another way."""
    return {name: values.clone() for name, values in batch.items()}


def _rows(microbatch: Batch) -> int:
    return len(next(iter(microbatch.values())))
