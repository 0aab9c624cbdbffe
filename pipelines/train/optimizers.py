"""Everything around the reduction of gradients: backward, division by the batch's weight, clipping, optimizer step, learning rate.

All factors of a gradient are here. It ends as that of the mean loss, clipped:

1. `scale_loss` divides the sum of losses by the weight that a global batch is expected to have, times the loss scale of fp16; and times the
   number of workers, if the exchange divides by it.
2. `unit` is the factor that gradients then have to that of the mean loss, for those who work with them before the update.
3. `apply` removes it: the loss scale, then by `rescale` both the ratio of the expected weight to the true one, which is `mean_factor`, and
   what is beyond the norm to clip at.

Of the optimizers, `muon` makes orthogonal changes of weight matrices, and has AdamW for all other parameters: K. Jordan et al. 2024, "Muon:
an optimizer for hidden layers in neural networks". The change of a matrix has the root mean square that AdamW's has, so both take the same
rate and weight decay (Liu et al. 2025, "Muon is scalable for LLM training").
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.runtime.compat.torch import scale_tensors
from pipelines.train.dtensor import is_dtensor, local_part, total_norm
from pipelines.train.fine_tuning import match_names
from pipelines.train.passes import Precision, one_thread
from pipelines.train.step_clock import BACKWARD, OPTIMIZER, StepClock
from pipelines.train.workers import WorkerContext

FACTOR = "lr_factor"
"""Key of a group of parameters in an optimizer: multiplies the rate of the schedule."""
MATRICES = "matrices"
"""Key of a group of parameters: whether they are the matrices of hidden layers."""


def mean_factor(expected_weight: float, weight: Tensor) -> Tensor:
    """The factor that makes a sum of losses' gradient, divided by the `expected_weight`, the gradient of the mean loss.

    It is 1 unless rows have different weights, or rounding changed the last bit of their sum.
    """
    return torch.where(weight > 0, expected_weight / weight, 0.0)


def rescale(gradients: list[Tensor], factor: Tensor, norm: Tensor, clip: float | None) -> None:
    """Multiply gradients by the factor, and by what limits the `norm` of the mean gradient to `clip`."""
    if clip is not None:
        factor = factor * (clip / (norm + 1e-6)).clamp(max=1.0)
    if gradients and (factor.device.type != "cpu" or factor.item() != 1):
        scale_tensors(gradients, factor.float().to(gradients[0].device))


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the rate of every group of parameters, times the group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(FACTOR, 1.0)


class Update:
    """A model's optimizer and loss scaler, with their state in a checkpoint."""

    def __init__(
        self,
        settings: Train,
        model: nn.Module,
        context: WorkerContext,
        precision: Precision,
        clock: StepClock,
        pipeline: dist.ProcessGroup | None = None,
        clips_alike: bool = False,
    ) -> None:
        """`clock` is told when the backward pass and the optimizer begin. `pipeline`: the workers that hold the model together, each
        some of its parameters. `clips_alike`: whether all workers clip by the norm that rank 0 computes, since a sum over many entries
        rounds differently with another number of threads."""
        self._settings, self._model, self._precision, self._pipeline, self._clock = settings, model, precision, pipeline, clock
        self._expected_weight = settings.global_batch
        self._sends_norm = clips_alike and context.world_size > 1 and settings.clip_norm is not None
        self._parameters = list(model.parameters())
        self.optimizer = create_optimizer(settings, parameter_groups(settings, model))
        self._average = WeightAverage(model, settings.ema_decay) if settings.ema_decay else None
        self._scaler = torch.amp.GradScaler(context.device.type, enabled=precision.has_loss_scale)

    def backward(self, loss_sum: Tensor, averaged_over: int = 1) -> None:
        """Run the backward pass from a sum of losses.

        Gradients become those of the mean loss if the global batch's weight is its number of rows; else `apply` corrects
        them. If the reduction averages gradients over workers instead of summing them, `averaged_over` is their number.
        """
        self._clock.enter(BACKWARD)
        self.scale_loss(loss_sum, averaged_over).backward()

    def scale_loss(self, loss_sum: Tensor, averaged_over: int = 1) -> Tensor:
        """Scale a sum of losses as `backward` does, for a caller with a backward pass of its own."""
        return self._scaler.scale(loss_sum * (averaged_over / self._expected_weight))

    def unit(self, weight: Tensor) -> Tensor:
        """The factor of the mean gradient if the global batch has `weight`; `apply` divides gradients by it."""
        return self._scaler.scale(weight / self._expected_weight)

    @torch.no_grad()
    def apply(self, rate: float, weight: Tensor, compute_grad_norm: bool = True) -> Tensor:
        """Correct gradients for the global batch's true `weight`, clip them, and take the optimizer step.

        Returns the norm of the mean gradient before clipping: not finite if fp16 overflowed and the step was skipped, and
        -1 if nothing needs it.
        """
        self._clock.enter(OPTIMIZER)
        if self._precision.has_loss_scale:
            self._scaler.unscale_(self.optimizer)
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        clip = self._settings.clip_norm
        factor = mean_factor(self._expected_weight, weight)
        norm = weight.new_full((), -1.0)  # not new_tensor, whose copy from the host would wait for the GPU
        if compute_grad_norm or clip is not None or self._precision.has_loss_scale:
            norm = total_norm(gradients)
            if self._pipeline is not None:  # each worker holds some parameters
                square = norm.to(weight).square()
                dist.all_reduce(square, group=self._pipeline)
                norm = square.sqrt()
            norm = norm.to(weight.device) * factor
            if self._sends_norm:
                dist.broadcast(norm, 0)
        rescale([local_part(gradient) for gradient in gradients], factor, norm, clip)
        set_rate(self.optimizer, rate)
        self._scaler.step(self.optimizer)
        self._scaler.update()
        self.optimizer.zero_grad()
        if self._average:
            self._average.update()
        return norm

    def set_weight_decay(self, weight_decay: float) -> None:
        """Set the weight decay of every group of parameters."""
        for group in self.optimizer.param_groups:
            group["weight_decay"] = weight_decay

    def average_weights(self) -> AbstractContextManager[None]:
        """Have the model's parameters be their averages meanwhile, if the config asks for averages."""
        return self._average.in_place() if self._average else nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer and scaler, by fully qualified name."""
        from torch.distributed.checkpoint.state_dict import get_state_dict  # takes a second, which the driver need not spend

        is_new = not self.optimizer.state
        model, optimizer = get_state_dict(self._model, self.optimizer)
        if is_new:
            # torch has created the state by a step with zero gradients, which Adam counts, and in which weight decay moves momentum.
            for state in self.optimizer.state.values():
                for values in state.values():
                    if isinstance(values, Tensor):
                        values.zero_()
        average = {"average": self._average.state_dict()} if self._average else {}
        return {"model": model, "optimizer": optimizer, "scaler": self._scaler.state_dict(), **average}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        from torch.distributed.checkpoint.state_dict import set_state_dict

        set_state_dict(self._model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self._scaler.load_state_dict(state["scaler"])
        if self._average:
            self._average.load_state_dict(state["average"])


def hidden_matrices(model: nn.Module) -> set[Tensor]:
    """The weights of linear layers, except those of the last layer, of an embedding that shares them, and of an adaptive softmax.

    A weight that is computed from other parameters, as of a layer with adapters or a weight norm, is none. Raises ConfigError if none is
    trained.
    """
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    outputs = [module for module in model.modules() if isinstance(module, nn.Embedding | nn.AdaptiveLogSoftmaxWithLoss)]
    output_weights = {parameter for module in [*outputs, *linear[-1:]] for parameter in module.parameters()}
    # Not `layer.weight`, which may be computed from other parameters: no optimizer changes that.
    weights: list[Tensor] = [weight for layer in linear for name, weight in layer.named_parameters(recurse=False) if name == "weight"]
    matrices = {weight for weight in weights if weight.ndim == 2} - output_weights
    if not any(matrix.requires_grad for matrix in matrices):
        raise ConfigError(
            "train.optimizer is muon, which changes matrices of linear layers before the last, and the model trains none; set it to adamw"
        )
    return matrices


def parameter_groups(settings: Train, model: nn.Module) -> list[nn.Parameter] | list[dict[str, Any]]:
    """The trained parameters as an optimizer takes them: in groups by their factors of `train.lr_factors`, if there are any, and for muon
    by whether they are matrices of hidden layers.

    Raises ConfigError for a pattern that matches nothing, or no parameter that is trained and has no factor yet; and for muon, if no such
    matrix is trained.
    """
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    matrices = hidden_matrices(model) if settings.optimizer == "muon" else set()
    if not settings.lr_factors and not matrices:
        return list(trained.values())
    # Each parameter's factor is that of the first pattern that matches its name.
    parameters, factors = dict(model.named_parameters()), dict[str, float]()
    for pattern, factor in settings.lr_factors.items():
        names = [name for name in match_names(pattern, parameters, "train.lr_factors") if name in trained]
        if not names:
            raise ConfigError(f"train.lr_factors: {pattern} matches frozen parameters only, which have no rate; remove it")
        if all(name in factors for name in names):
            raise ConfigError(
                f"train.lr_factors: every parameter that {pattern} matches has the factor of a pattern before it; move it to the front"
            )
        factors |= {name: factor for name in names if name not in factors}
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in trained.items():
        groups.setdefault((factors.get(name, 1.0), parameter in matrices), []).append(parameter)
    kinds = [{FACTOR: factor, MATRICES: are_matrices} if matrices else {FACTOR: factor} for factor, are_matrices in groups]
    return [{"params": parameters, **kind} for parameters, kind in zip(groups.values(), kinds, strict=True)]


def create_optimizer(settings: Train, parameters: Sequence[nn.Parameter] | Sequence[dict[str, Any]]) -> Optimizer:
    """Create the optimizer that the config names, in its fused form: one kernel for all parameters, or for each group, on CPUs too."""
    rate, decay = settings.lr, settings.weight_decay
    if settings.optimizer == "muon":
        return Muon(cast(Sequence[dict[str, Any]], parameters), rate, decay)
    if settings.optimizer == "sgd":
        # torch has no fused form for those.
        fused = not any(isinstance(parameter, Tensor) and is_dtensor(parameter) for parameter in parameters)
        return SGD(parameters, lr=rate, momentum=settings.momentum, weight_decay=decay, fused=fused)
    kind = Adam if settings.optimizer == "adam" else AdamW
    return kind(parameters, lr=rate, weight_decay=decay, fused=True)


class Muon(Optimizer):
    """torch's Muon and AdamW as one optimizer, with one state."""

    def __init__(self, groups: Sequence[Mapping[str, Any]], rate: float, weight_decay: float) -> None:
        """Each group has its `params`, and whether they are MATRICES."""
        self._kinds: dict[bool, Optimizer] = {}
        for are_matrices in {bool(group[MATRICES]) for group in groups}:
            parameters = [parameter for group in groups if group[MATRICES] == are_matrices for parameter in group["params"]]
            self._kinds[are_matrices] = (
                torch.optim.Muon(parameters, lr=rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
                if are_matrices
                else AdamW(parameters, lr=rate, weight_decay=weight_decay, fused=True)
            )
        super().__init__([{**self._kinds[group[MATRICES]].defaults, **group} for group in groups], {"lr": rate})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step of each kind with its groups."""
        for are_matrices, optimizer in self._kinds.items():
            # Each time, since loading a checkpoint replaces both.
            optimizer.state = self.state
            optimizer.param_groups = [group for group in self.param_groups if group[MATRICES] == are_matrices]
            with one_thread() if are_matrices else nullcontext():
                optimizer.step()


class WeightAverage:
    """An exponential moving average of the trained parameters (Polyak and Juditsky 1992), which is evaluated in their place.

    After n steps the decay is at most (1 + n) / (10 + n), so that the initial weights are soon forgotten. Batch norm's statistics, which
    are averages already, stay those of the model.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._averages = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        self._steps = torch.zeros((), dtype=torch.int64)

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters after a step."""
        self._steps += 1
        steps = int(self._steps)
        decay = min(self._decay, (1 + steps) / (10 + steps))
        get_ema_multi_avg_fn(decay)([*self._averages.values()], [*self._parameters.values()], None)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Have the parameters hold their averages meanwhile."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def state_dict(self) -> dict[str, Any]:
        return {"weights": dict(self._averages), "steps": self._steps}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._steps.copy_(state["steps"])
        for name, average in self._averages.items():
            average.copy_(state["weights"][name])

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, parameter in self._parameters.items():
            present = parameter.clone()
            parameter.copy_(self._averages[name])
            self._averages[name].copy_(present)
