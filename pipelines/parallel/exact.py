"""Strategy `exact`: weights that are a pure function of dataset and config, bit for bit, for any number of workers.

The unit of computation is the shard, whichever worker owns it: one pass over its microbatch, from the same buffers, with
randomness of its own, on a fixed number of threads, with deterministic kernels. It gives gradients and, beside them, a
vector of sums and of changes of buffers. The shards' gradients and vectors are summed in a fixed tree, bucket by
bucket while the last pass goes on, and every worker takes the same step.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pipelines.collectives.context import WorkerContext
from pipelines.config.train import Train
from pipelines.loader import Loader
from pipelines.parallel.batch_norm import loss_of
from pipelines.parallel.buffers import ModelBuffers
from pipelines.parallel.deterministic import CUBLAS, check_model, check_passes, only_deterministic
from pipelines.parallel.gradient_reducer import GradientReducer
from pipelines.parallel.mesh import Mesh
from pipelines.parallel.precision import precision_of
from pipelines.parallel.randomness import seed
from pipelines.parallel.step import FLAGS, Flags, StepResult
from pipelines.parallel.strategy import Strategy
from pipelines.parallel.update import Update
from pipelines.tasks.base import Batch, Task, rows_of


class Exact(Strategy):
    """One pass per shard; a fixed binary tree over the shards' gradients.

    Raises ConfigError for a model, or before the first step for a kernel, that has no deterministic form.
    """

    reproducible = True
    environment = CUBLAS

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        model = build()
        check_model(model)
        only_deterministic(context.device)
        torch.set_num_threads(settings.threads_per_shard)
        self._settings, self._task, self._context, self.mesh = settings, task, context, Mesh(context)
        self._precision = precision_of(settings.precision, context.device)
        self.model = model.to(context.device)
        if settings.compile:
            # For shapes as they are: which shapes came first would decide how a kernel for all of them adds.
            self.model.compile(dynamic=False)
        self._update = Update(settings, self.model, context, self._precision)
        self._owned = self.mesh.owned_shards(settings.shards)
        self._buffers = ModelBuffers(self.model)
        self._gradients: GradientReducer | None = None
        """Made at the first step, once its rows were tried."""

    def batches(self, loader: Loader) -> Iterator[list[Batch]]:
        """Each step's microbatches, one for each shard that this worker owns."""
        return map(loader.by_shard, loader)

    def step(self, batch: list[Batch], number: int, rate: float, flags: Flags, measured: bool = True) -> StepResult:
        if not self.model.training:
            self.model.train()
        before = self._buffers.clones()
        gradients = self._gradients or self._begun(batch, before)
        own_loss = torch.zeros((), dtype=torch.float64, device=self._context.device)
        # Whole numbers: their sum is the same in any order, so that one shard can carry the worker's.
        own_flags = torch.tensor(flags.numbers(), dtype=torch.float64).to(self._context.device, non_blocking=True)
        for shard, microbatch in zip(self._owned, batch, strict=True):
            self._buffers.restore(before)
            seed(self._context.device, self._settings.seed, number, shard)
            gradients.begin()
            sums = self._pass(microbatch, gradients)
            own_loss += sums[0]
            gradients.end(torch.cat([sums, own_flags, *self._buffers.changes(before)]))
            own_flags = torch.zeros_like(own_flags)
        sums, flags_of_all, changes = gradients.wait().split([4, FLAGS, self._buffers.numel])
        loss_sum, weight, rows, shards_with_rows = sums
        self._buffers.move(before, changes / shards_with_rows.clamp(min=1))
        norm = self._update.apply(rate, weight, measured)
        return StepResult(norm, own_loss, loss_sum, weight, rows, flags_of_all)

    def predict(self, batch: Batch) -> Tensor:
        return self._update.predict(_aligned(batch))

    def sample(self, epoch: int) -> str:
        return self._update.sample(self._task, epoch)

    def sync_buffers(self) -> None:
        """Nothing to do, buffers are equal after every step. Raises ConfigError if one is another tensor than at the start."""
        self._buffers.check_in_place()

    def state_dict(self) -> dict[str, Any]:
        return self._update.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._update.load_state_dict(state)

    def weights(self) -> dict[str, Tensor]:
        return self._update.weights()

    def _begun(self, batch: list[Batch], before: list[Tensor]) -> GradientReducer:
        """What the first step needs more than others. Raises ConfigError if two passes over the same rows differ, or if one
        replaces a buffer."""
        assert self.mesh.workers_per_replica == 1, "the tree adds up replicas, and takes each worker for one"
        microbatch = next((microbatch for microbatch in batch if rows_of(microbatch)), None)
        if microbatch is not None:
            check_passes(self.model, lambda: self._rehearsed(microbatch, before))
            self._buffers.restore(before)
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        shards = self._settings.shards
        beside = 4 + FLAGS + self._buffers.numel
        self._gradients = GradientReducer(trained, beside, self.mesh.shards_by_replica(shards), self.mesh.replica, shards)
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
        rows = rows_of(microbatch)
        parts = min(self._settings.accumulate, rows)
        for part in range(parts):
            passed = _aligned({name: values.tensor_split(parts)[part] for name, values in microbatch.items()})
            with self._precision.autocast(self._context.device.type):
                loss, weight = loss_of(self._task, self.model, passed)
            sums += torch.stack([loss.detach().double(), weight.detach().double()])
            if gradients is not None and part == parts - 1:
                gradients.last_pass()
            self._update.backward(loss)
        return torch.cat([sums, sums.new_tensor([rows, rows > 0])])


def _aligned(batch: Batch) -> Batch:
    """Copied out of what others' rows lie in too: a kernel may add in another order when memory is aligned in another way."""
    return {name: values.clone() for name, values in batch.items()}
