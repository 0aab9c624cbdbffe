"""Strategy `exact`: weights that are a pure function of dataset and config, bit for bit, for any number of workers.

The unit of computation is the shard, whichever worker owns it: one pass over its microbatch, from the same buffers, with
its own seed, on a fixed number of threads, with deterministic kernels. A pass yields gradients, and a vector of sums and of
changes of buffers. Both are summed over the shards in a fixed tree, bucket by bucket during the last pass, and every
worker takes the same optimizer step. Nondeterministic layers and kernels are rejected by name, before training starts.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from pipelines.config.train.strategy import FixedThreads
from pipelines.config.train.train import Train
from pipelines.data.loader import Loader
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Task, row_count
from pipelines.train.buffers import ModelBuffers
from pipelines.train.exact.gradient_reducer import GradientReducer
from pipelines.train.optimizers import Update
from pipelines.train.passes import Passes, copy_aligned, seed
from pipelines.train.step_clock import EXCHANGE
from pipelines.train.step_statistics import FLAGS, Flags, StepResult
from pipelines.train.strategy import OneOptimizer
from pipelines.train.workers import WorkerContext

CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Without it, cuBLAS chooses its workspace, and so the order of additions, depending on other streams. Read when CUDA starts."""
_REMEDY = "a reproducible strategy does not support it: use another layer, or set train.strategy to ddp"
_TORCH_SAYS = " does not have a deterministic implementation"


def require_deterministic_kernels(device: torch.device) -> None:
    """Make torch reject nondeterministic kernels, from now on in this process."""
    if device.type == "cuda":
        for name, value in CUBLAS.items():
            os.environ.setdefault(name, value)
        torch.backends.cudnn.benchmark = False  # it would pick kernels by measured speed
    torch.use_deterministic_algorithms(True)
    # By default torch then also fills new memory, an additional pass over every tensor that a kernel is about to write.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def check_model(model: nn.Module) -> None:
    """Raise ConfigError, naming the layer, for one that has no deterministic form."""
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise ConfigError(
                f"{name} is a synchronised batch norm, whose sums depend on the number of workers; use a BatchNorm1d, BatchNorm2d or "
                "BatchNorm3d, or set train.strategy to ddp and train.sync_batch_norm to true"
            )
        if getattr(module, "sparse", False):
            raise ConfigError(f"{name} has sparse gradients, which a reproducible strategy does not support; set sparse=False")


def check_passes(model: nn.Module, buffers: ModelBuffers, run: Callable[[], Tensor]) -> None:
    """Run forward and backward twice from the same state, and compare the bits. The model does not change.

    `run` seeds torch, returns the loss's sums, and leaves gradients in the parameters, which are removed. Raises ConfigError if
    torch reports a nondeterministic kernel, if the two passes differ, or if one replaces a buffer or changes one that no checkpoint
    holds. The error names the operation, the parameter or the buffer.
    """
    before = buffers.clones()
    passes: list[dict[str, Tensor]] = []
    for _ in range(2):
        try:
            sums = run()
        except RuntimeError as error:
            if _TORCH_SAYS not in str(error):
                raise
            raise ConfigError(f"{str(error).partition(_TORCH_SAYS)[0]} has no deterministic kernel on this device; {_REMEDY}") from error
        buffers.check_in_place()
        buffers.check_saved(before)
        buffers.restore(before)
        passes.append({"the loss": sums})
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                if parameter.grad.layout != torch.strided:
                    raise ConfigError(f"{name} has a sparse gradient; {_REMEDY}")
                passes[-1][f"the gradient of {name}"] = parameter.grad
                parameter.grad = None
    first, second = passes
    for name, values in first.items():
        if name not in second or not torch.equal(values.reshape(-1).view(torch.uint8), second[name].reshape(-1).view(torch.uint8)):
            raise ConfigError(
                f"two passes over the same rows from the same state differ in {name}: a layer is not deterministic, or draws random "
                "numbers that do not depend on torch's seed; draw them with torch, or set train.strategy to ddp"
            )


class Exact(OneOptimizer):
    """Runs one pass per shard, and sums the shards' gradients in a fixed binary tree.

    Raises ConfigError for a layer or, before the first step, for a kernel that is not deterministic.
    """

    environment = CUBLAS

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        super().__init__(settings, task, build, context)
        check_model(self.model)
        require_deterministic_kernels(context.device)
        torch.set_num_threads(settings.strategy_as(FixedThreads).threads_per_shard)
        self.model.to(context.device)
        if settings.compile:
            # Static shapes: a kernel for dynamic ones would add in an order that depends on the shapes seen first.
            self.model.compile(dynamic=False)
        self._update = Update(settings, self.model, context, self._precision, self.clock)
        self._owned = self.mesh.worker_shards(settings.shards)
        self._passes = Passes(task, self.model, self._precision, context, settings.grad_accum_steps)
        self._buffers = ModelBuffers(self.model)
        self._gradients: GradientReducer | None = None
        """Created at the first step, after a trial with its rows."""

    def batches(self, loader: Loader) -> Iterator[list[Batch]]:
        """Each step's microbatches, one for each shard that this worker owns."""
        return map(loader.split_by_shard, loader)

    def step(self, batch: list[Batch], number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        if not self.model.training:
            self.model.train()
        before = self._buffers.clones()
        gradients = self._gradients or self._prepare_first_step(batch)
        own_loss = torch.zeros((), dtype=torch.float64, device=self._context.device)
        # Integers have the same sum in any order, so the worker's first shard can carry its flags.
        own_flags = torch.tensor(flags.numbers(), dtype=torch.float64).to(self._context.device, non_blocking=True)
        for shard, microbatch in zip(self._owned, batch, strict=True):
            self._buffers.restore(before)
            seed(self._context.device, self._settings.seed, number, shard)
            gradients.begin()
            sums = self._pass(microbatch, gradients)
            own_loss += sums[0]
            gradients.end(torch.cat([sums, own_flags, *self._buffers.changes(before)]))
            own_flags = torch.zeros_like(own_flags)
        self.clock.enter(EXCHANGE)
        sums, flag_counts, changes = gradients.wait().split([4, FLAGS, self._buffers.numel])
        loss_sum, weight, rows, shards_with_rows = sums
        self._buffers.move(before, changes / shards_with_rows.clamp(min=1))
        norm = self._update.apply(rate, weight, compute_grad_norm)
        return StepResult(norm, own_loss, loss_sum, weight, rows, flag_counts)

    def assign_shards(self, shard_counts: tuple[int, ...]) -> None:
        self.mesh = replace(self.mesh, shard_counts=shard_counts)
        self._owned = self.mesh.worker_shards(self._settings.shards)
        if self._gradients is not None:
            self._gradients.close()
            self._gradients = self._new_reducer()

    def predict(self, batch: Batch) -> Tensor:
        return super().predict(copy_aligned(batch))

    def sync_buffers(self) -> None:
        """Only check: buffers are equal after every step. Raises ConfigError if one is not the same tensor as at the start."""
        self._buffers.check_in_place()

    def close(self) -> None:
        if self._gradients is not None:
            self._gradients.close()
            self._gradients = None

    def _prepare_first_step(self, batch: list[Batch]) -> GradientReducer:
        """Prepare the first step: create the gradient reducer, after a trial. Raises ConfigError if two passes over the same
        rows differ, or if a pass replaces a buffer."""
        assert self.mesh.workers_per_replica == 1, "the tree sums over replicas, and each worker is one"
        microbatch = next((microbatch for microbatch in batch if row_count(microbatch)), None)
        if microbatch is not None:
            self._try(microbatch)
        self._gradients = self._new_reducer()
        return self._gradients

    def _new_reducer(self) -> GradientReducer:
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        shards, vector_size = self._settings.shards, 4 + FLAGS + self._buffers.numel
        return GradientReducer(trained, vector_size, self.mesh.shards_by_replica(shards), self.mesh.replica, shards)

    def _try(self, microbatch: Batch) -> None:
        def run() -> Tensor:
            seed(self._context.device, self._settings.seed)
            return self._pass(microbatch)

        check_passes(self.model, self._buffers, run)

    def _pass(self, microbatch: Batch, gradients: GradientReducer | None = None) -> Tensor:
        """Run forward and backward over a shard's rows. Returns loss, weight, rows, and 1 if there are rows: float64 of shape (4,)."""
        sums = self._passes.run(microbatch, self._update.backward, self.clock, gradients.last_pass if gradients is not None else None)
        rows = row_count(microbatch)
        return torch.cat([sums, sums.new_full((1,), rows), sums.new_full((1,), rows > 0)])
