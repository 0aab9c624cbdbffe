"""A client: trains the model of a round's start on its own rows, with an optimizer of its own that begins anew."""

from functools import partial

import torch
from torch import Tensor, nn

from pipelines.config.train.train import Train
from pipelines.strategies.federated.rounds import Turn
from pipelines.strategies.federated.settings import Settings
from pipelines.strategies.replicas.replica import SUMS, ModelState, Replica
from pipelines.tasks.base import Batch, Task
from pipelines.train.passes import choose_precision
from pipelines.train.reduce.context import WorkerContext
from pipelines.train.step_clock import StepClock
from pipelines.train.update import Update


class Client(Replica):
    """Plays one client after the other; each starts at `start`.

    FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017. FedProx: Li et al.,
    "Federated Optimization in Heterogeneous Networks", MLSys 2020.
    """

    def __init__(self, settings: Train, task: Task, model: nn.Module, context: WorkerContext, clock: StepClock, start: ModelState) -> None:
        """`settings` are those of `train`, but with a client's share of `global_batch`."""
        super().__init__(0, settings, task, model, context, clock)
        self._start, self._proximal = start, settings.strategy_as(Settings).proximal
        self._new_update = partial(Update, settings, model, context, choose_precision(settings.precision, context.device), clock)

    def begin(self, client: int) -> None:
        """Become `client`, at the round's start."""
        self._number = client
        self.model_state.copy(self._start)
        self._update = self._new_update()

    @torch.enable_grad()  # the sum of changes has disabled gradients
    def play(self, turn: Turn, number: int, rate: float) -> Tensor:
        """Train for the client's turn in round `number`. Returns the sums over its steps that `Replica.step` gives for one."""
        self.begin(turn.client)
        sums = torch.zeros(SUMS, dtype=torch.float64, device=self._device)
        for step, batch in enumerate(turn.batches()):
            sums += self.step(batch, number, rate, False, step)
        return sums

    def _pass(self, batch: Batch) -> Tensor:
        """Run the pass of a replica. With FedProx, add the gradient of the proximal term."""
        sums = super()._pass(batch)
        if self._proximal:
            factor = (self._proximal * self._update.unit(sums[1])).float()
            for parameter, start in zip(self.model_state.parameters, self._start.parameters, strict=True):
                pull = (parameter.detach() - start.detach()) * factor
                parameter.grad = pull if parameter.grad is None else parameter.grad.add_(pull)
        return sums
