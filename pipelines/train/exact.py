"""Strategy `exact`: weights that are a pure function of dataset and config, bit for bit, for any number of workers.

The unit of computation is the shard, whoever plays it: one pass over its microbatch, from the same buffers, with
randomness of its own, on a fixed number of threads, with deterministic kernels. It gives two vectors: gradients with
the changes of buffers, and a few sums. The shards' vectors meet in the fixed tree of `tree`, and every worker takes the
same step.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipelines.config.train import Train
from pipelines.errors import TrainingError
from pipelines.loader import Loader
from pipelines.tasks.base import Batch, Task
from pipelines.train.place import Place, seed
from pipelines.train.precision import precision_of
from pipelines.train.tree import meet, worker_nodes
from pipelines.train.update import Update


class Exact:
    """One pass per shard; a fixed binary tree over the shards' gradients.

    Raises TrainingError for a model, or on the first step for a kernel, that has no deterministic form.
    """

    def __init__(self, settings: Train, task: Task, model: nn.Module, place: Place) -> None:
        _check(model)
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(settings.threads_per_shard)
        self._settings, self._task, self._place = settings, task, place
        self._precision = precision_of(settings.precision, place.device)
        self.model = model.to(place.device)
        if settings.compile:
            self.model.compile()
        self._update = Update(settings, self.model, place, self._precision)
        self._plays = [Place(rank, place.world_size).plays(settings.shards) for rank in range(place.world_size)]
        self._parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self._drifting = [buffer for buffer in self.model.buffers() if buffer.is_floating_point()]
        self._counting = [buffer for buffer in self.model.buffers() if not buffer.is_floating_point()]
        sizes = [tensor.numel() for tensor in (*self._parameters, *self._drifting)]
        self._sizes = [*sizes, len(self._parameters)]
        """Of the pieces of a shard's flat vector: gradients, changes of buffers, and which parameters were used."""

    def batches(self, loader: Loader) -> Iterator[list[Batch]]:
        """Each step's microbatches, one for each shard that this worker plays."""
        return map(loader.by_shard, loader)

    def step(self, batch: list[Batch], number: int, rate: float, votes: Sequence[float], measured: bool = True) -> Tensor:
        self.model.train()
        block, shards = self._plays[self._place.rank], self._settings.shards
        before = [buffer.clone() for buffer in self.model.buffers()]
        sums: dict[int, Tensor] = {}

        def vector(shard: int) -> Tensor:
            self._restore(before)
            seed(self._place, self._settings.seed, number, shard)
            flat, sums[shard] = self._pass(batch[shard - block.start], before)
            return flat

        total = meet(worker_nodes(block, shards, vector), self._plays, shards)
        own_loss = sum(float(sums[shard][0]) for shard in block)
        counted = meet(worker_nodes(block, shards, sums.__getitem__), self._plays, shards)
        self._move(before, total, counted)
        norm = self._update.apply(rate, counted[1].to(self._place.device), measured)
        return torch.cat([torch.stack([norm.double().cpu(), counted.new_tensor(own_loss)]), counted[:3], self._votes(votes)]).to(
            norm.device
        )

    def predict(self, batch: Batch) -> Tensor:
        return self._update.predict(batch)

    def settle(self) -> None:
        """Nothing: buffers are equal after every step."""

    def state_dict(self) -> dict[str, Any]:
        return self._update.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._update.load_state_dict(state)

    def _votes(self, votes: Sequence[float]) -> Tensor:
        met = torch.tensor(votes, dtype=torch.float64)
        if self._place.world_size > 1:
            dist.all_reduce(met)  # whole numbers: their sum is the same in any order
        return met

    def _pass(self, microbatch: Batch, before: list[Tensor]) -> tuple[Tensor, Tensor]:
        """A shard's flat vector, and its float64 sums on the CPU: loss, weight, rows, whether there were any,
        and the rise of every counting buffer."""
        sums = torch.zeros(2, dtype=torch.float64, device=self._place.device)
        rows = len(next(iter(microbatch.values())))
        parts = min(self._settings.accumulate, rows)
        for part in range(parts):
            # Cloned, because a kernel may add in another order when memory is aligned in another way.
            passed = {name: values.tensor_split(parts)[part].clone() for name, values in microbatch.items()}
            with self._precision.autocast(self._place.device.type):
                loss, weight = self._task.loss(self.model, passed)
            sums += torch.stack([loss.detach().double(), weight.detach().double()])
            self._update.backward(loss / self._settings.global_batch)
        starts = [start for start in before if not start.is_floating_point()]
        rises = [(buffer - start).flatten().double().cpu() for buffer, start in zip(self._counting, starts, strict=True)]
        return self._flat(before), torch.cat([sums.cpu(), torch.tensor([rows, rows > 0], dtype=torch.float64), *rises])

    @torch.no_grad()
    def _flat(self, before: list[Tensor]) -> Tensor:
        flat = torch.zeros(sum(self._sizes), device=self._place.device)
        *pieces, used = flat.split(self._sizes)
        for number, (piece, parameter) in enumerate(zip(pieces, self._parameters, strict=False)):
            if parameter.grad is not None:
                piece.copy_(parameter.grad.flatten())
                used[number] = 1
                parameter.grad = None
        starts = [start for start in before if start.is_floating_point()]
        for piece, buffer, start in zip(pieces[len(self._parameters) :], self._drifting, starts, strict=True):
            torch.sub(buffer.flatten(), start.flatten(), out=piece)
        return flat

    @torch.no_grad()
    def _restore(self, before: list[Tensor]) -> None:
        for buffer, start in zip(self.model.buffers(), before, strict=True):
            buffer.copy_(start)

    @torch.no_grad()
    def _move(self, before: list[Tensor], total: Tensor, counted: Tensor) -> None:
        """Give every parameter its summed gradient, and move every buffer by the mean over the shards that had rows.

        Raises TrainingError if a counting buffer rose differently from shard to shard.
        """
        self._restore(before)
        *pieces, used = total.split(self._sizes)
        for number, parameter in enumerate(self._parameters):
            parameter.grad = pieces[number].view_as(parameter) if used[number] > 0 else None
        ran, at = float(counted[3]), 4
        for piece, buffer in zip(pieces[len(self._parameters) :], self._drifting, strict=True):
            buffer.add_(piece.view_as(buffer) / ran)
        for buffer in self._counting:
            rise = counted[at : at + buffer.numel()] / ran
            if bool((rise != rise.round()).any()):
                raise TrainingError("a buffer of whole numbers rose differently from shard to shard; it has no mean: use strategy ddp")
            buffer.add_(rise.view_as(buffer).to(buffer))
            at += buffer.numel()


def _check(model: nn.Module) -> None:
    """Refuse, before training starts, what has no deterministic form."""
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise TrainingError(f"{name} is a synchronised batch norm, whose sums depend on the workers: use plain batch norm, or ddp")
        if getattr(module, "sparse", False):
            raise TrainingError(f"{name} has sparse gradients, which have no fixed tree: set sparse=False, or use strategy ddp")
