"""The update after the reduction of gradients, for every strategy: divide, clip, step; and its state in a checkpoint."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from pipelines.collectives.context import WorkerContext
from pipelines.compat.torch import scale
from pipelines.config.train import Train
from pipelines.parallel.optimizer import optimizer
from pipelines.parallel.precision import Precision
from pipelines.tasks.base import Batch, Task, rows_of
from pipelines.weights import weights_of


class Update:
    """A model's optimizer and loss scaler."""

    def __init__(self, settings: Train, model: nn.Module, context: WorkerContext, precision: Precision) -> None:
        self._settings, self._model, self._context, self._precision = settings, model, context, precision
        self._expected_weight = settings.global_batch
        self._parameters = list(model.parameters())
        self._optimizer = optimizer(settings, self._parameters)
        self._scaler = torch.amp.GradScaler(context.device.type, enabled=precision.scaled)

    def backward(self, loss_sum: Tensor, *beside: Tensor, averaged_over: int = 1) -> None:
        """Backward from a sum of losses, and from what is given beside it, which nothing divides.

        Gradients are those of the mean loss, were the global batch's weight its number of rows; `apply` corrects them where
        it is another. Where they are averaged over workers on their way, instead of summed, `averaged_over` says how many.
        """
        scaled = self._scaler.scale(loss_sum * (averaged_over / self._expected_weight))  # fp16 scales the loss alone
        torch.autograd.backward((scaled, *(values * averaged_over for values in beside)))

    @torch.no_grad()
    def apply(self, rate: float, weight: Tensor, measured: bool = True) -> Tensor:
        """Make gradients those of the mean over the global batch's true `weight`; clip them, and step.

        Returns the mean gradient's norm before clipping, not finite if fp16 overflowed and the step was left out; -1 if
        nothing asked for it.
        """
        if self._precision.scaled:
            self._scaler.unscale_(self._optimizer)
        clip = self._settings.clip_norm
        # 1 unless rows weigh differently, or their sum is off by its last bit.
        factor = torch.where(weight > 0, self._expected_weight / weight, 0.0)
        norm = weight.new_tensor(-1.0)
        if measured or clip is not None or self._precision.scaled:
            norm = nn.utils.get_total_norm(self._gradients()) * factor
        if clip is not None:
            factor = factor * (clip / (norm + 1e-6)).clamp(max=1.0)
        if factor.device.type != "cpu" or factor.item() != 1:
            scale(self._gradients(), factor.float())
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad()
        return norm

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    @torch.no_grad()
    def predict(self, batch: Batch) -> Tensor:
        """The model's output in evaluation mode, in the precision that it is trained in; nothing for no rows."""
        if not rows_of(batch):
            return torch.empty(0)
        self._model.eval()
        with self._precision.autocast(self._context.device.type):
            return cast(Tensor, self._model(batch))

    @torch.no_grad()
    def sample(self, task: Task, epoch: int) -> str:
        """What the task gives to look at, on rank 0; its model is in evaluation mode meanwhile."""
        if self._context.rank:
            return ""
        self._model.eval()
        return task.sample(self._model, epoch)

    def weights(self) -> dict[str, Tensor]:
        """The model's parameters and buffers on the CPU, on rank 0: all workers have the same."""
        return {} if self._context.rank else weights_of(self._model)

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer and scaler, by fully qualified name."""
        model, optimizer = get_state_dict(self._model, self._optimizer)
        return {"model": model, "optimizer": optimizer, "scaler": self._scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        set_state_dict(self._model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self._scaler.load_state_dict(state["scaler"])
