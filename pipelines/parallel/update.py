"""What follows the reduction of gradients, alike for every strategy: divide, clip, step; and what a checkpoint holds of it."""

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
from pipelines.tasks.base import Batch


class Update:
    """A model's optimizer and loss scaler."""

    def __init__(self, settings: Train, model: nn.Module, context: WorkerContext, precision: Precision) -> None:
        self._settings, self._model, self._device_type, self._precision = settings, model, context.device.type, precision
        self._parameters = list(model.parameters())
        self._optimizer = optimizer(settings, self._parameters)
        self._scaler = torch.amp.GradScaler(context.device.type, enabled=precision.scaled)

    def backward(self, loss: Tensor, *beside: Tensor) -> None:
        """Backward from the loss, scaled up where fp16 needs it, and from what is given beside it."""
        torch.autograd.backward((self._scaler.scale(loss), *beside))

    @torch.no_grad()
    def apply(self, rate: float, weight: Tensor, measured: bool = True) -> Tensor:
        """Turn gradients, which are sums divided by `global_batch`, into the mean over `weight`; clip, and step.

        Returns the mean gradient's norm before clipping, not finite if fp16 overflowed and the step was left out; -1 if
        nothing asked for it.
        """
        if self._precision.scaled:
            self._scaler.unscale_(self._optimizer)
        clip = self._settings.clip_norm
        # 1 unless rows weigh differently, or their sum is off by its last bit.
        factor = torch.where(weight > 0, self._settings.global_batch / weight, 0.0)
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
        """The model's output in evaluation mode, in the precision that it is trained in."""
        self._model.eval()
        with self._precision.autocast(self._device_type):
            return cast(Tensor, self._model(batch))

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer and scaler, by fully qualified name."""
        model, optimizer = get_state_dict(self._model, self._optimizer)
        return {"model": model, "optimizer": optimizer, "scaler": self._scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        set_state_dict(self._model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self._scaler.load_state_dict(state["scaler"])
