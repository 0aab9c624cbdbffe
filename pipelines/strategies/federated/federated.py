"""Strategy `federated`: the clients of a round train on their own rows, and the model moves by the mean of their changes.

Clients are dealt to any number of workers up to `per_round`. A client's change depends on its rows, the model and the round, and
changes are summed in the fixed tree over the round's places. So the model is a pure function of dataset and config, bit for bit, as with
`exact`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from pipelines.config import Config
from pipelines.config.train.train import Train
from pipelines.data.loader import shard_range
from pipelines.data.versions.versions import Version, include_passthrough
from pipelines.strategies.federated.rounds import Round, Rounds, Turn, check_accountant, check_federated, epsilon, noise
from pipelines.strategies.federated.settings import Settings
from pipelines.strategies.replica import SUMS, ModelMeans, ModelState, Outer, Replica
from pipelines.tasks.base import Batch, Task
from pipelines.train.exact.exact import CUBLAS, check_model, require_deterministic_kernels
from pipelines.train.optimizers import Update
from pipelines.train.passes import choose_precision, copy_aligned
from pipelines.train.run_context import train_order
from pipelines.train.step_clock import EXCHANGE, StepClock
from pipelines.train.step_statistics import Flags, StepResult, gather_replicas
from pipelines.train.strategy import Strategy
from pipelines.train.workers import WorkerContext

_NUMBERS = 6
"""Numbers of each client: sum of losses, weight, rows, norm of its change, 1 if that was clipped, 1."""


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


class Federated(Strategy):
    """Plays a contiguous block of each round's places. Raises ConfigError for a layer or, before the first step, for a kernel that is not
    deterministic."""

    environment = CUBLAS
    gpu_steps_per_reading = 1
    """A round takes long, and reading its sums nothing: a request to stop is seen after each."""

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        self._clients = settings.strategy_as(Settings)
        check_accountant(self._clients)
        super().__init__(settings, task, build, context)
        self.model.to(context.device)
        check_model(self.model)
        require_deterministic_kernels(context.device)
        torch.set_num_threads(self._clients.threads_per_shard)
        self._outer = Outer(self._clients, self.model)
        share = settings.model_copy(update={"global_batch": settings.global_batch // self._clients.per_round})
        self._client = Client(share, task, build().to(context.device), context, self.clock, self._outer.model_state)
        self._is_checked = False
        self._last_sums: list[float] = [0.0] * _NUMBERS
        self._places = self._all_clients = self._rounds = 0

    @classmethod
    def check(cls, settings: Train, task: Task, version: Version) -> None:
        check_federated(settings, version, task)

    def open_loader(self, config: Config, version: Version, task: Task) -> Rounds:
        order = replace(train_order(config), remainder="keep")  # clients use all their rows, however few there are
        rows = include_passthrough(version, task.settings.passthrough)
        return Rounds(rows, order, self._clients, self._context, draws=task.draws)

    def step(self, batch: Round, number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        """One round. It has no gradient, so its norm is -1."""
        if not self._is_checked:  # raise ConfigError if two passes over the first rows differ, or if one replaces a buffer
            self._is_checked = True
            if turn := next(iter(batch.turns.values()), None):
                self._client.begin(turn.client)
                self._client.check(next(turn.batches()))
        self._places, self._all_clients, self._rounds = batch.places, batch.clients, number + 1
        places = self._played[self._context.rank]
        numbers = torch.zeros(len(places), _NUMBERS, dtype=torch.float64, device=self._context.device)
        changes: list[Tensor] = []
        means = self._means.mean_deltas(self._deltas(batch, number, rate, numbers, changes))
        if self._clients.noise:
            assert self._clients.clip is not None, "the config is checked"
            deviation = self._clients.noise * self._clients.clip / self._clients.per_round
            sizes = [mean.numel() for mean in means]
            normal = torch.from_numpy(noise(self._settings.seed, number, sum(sizes)))
            for mean, part in zip(means, normal.split(sizes), strict=True):
                mean.add_((part * deviation).view(mean.shape).to(mean.device, mean.dtype))
        self._outer.step(means, self._means.mean_changes(changes))
        by_place, flag_counts = gather_replicas(numbers, places, batch.places, flags)
        sums = by_place.sum(0)
        self._last_sums = sums.tolist()
        return StepResult(sums.new_full((), -1), numbers[:, 0].sum(), sums[0], sums[1], sums[2], flag_counts)

    def metrics(self) -> dict[str, float]:
        _, _, rows, norms, clipped, clients = self._last_sums
        metrics = {"federated/clients": clients, "federated/rows": rows / self._clients.local_epochs}
        if clients:
            metrics["federated/change_norm"] = norms / clients
            if self._clients.clip is not None:
                metrics["federated/clipped"] = clipped / clients
        if noise_multiplier := self._clients.noise:
            share = self._clients.per_round / self._all_clients
            metrics["federated/epsilon"] = epsilon(share, noise_multiplier, self._rounds, self._clients.delta)
        return metrics

    def predict(self, batch: Batch) -> Tensor:
        return super().predict(copy_aligned(batch))

    def sync_buffers(self) -> None:
        """Do nothing: every worker has the whole model."""

    def state_dict(self) -> dict[str, Any]:
        return self._outer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._outer.load_state_dict(state)

    def _deltas(self, played: Round, number: int, rate: float, numbers: Tensor, changes: list[Tensor]) -> Iterator[list[Tensor]]:
        """The change of every place of this worker, clipped, and times its factor; zeros for an empty place. Fills `numbers`, and appends
        the changes of buffers, if the model has any, to `changes`."""
        start, has_buffers = self._outer.model_state, bool(self._outer.model_state.buffers.numel)
        for row, place in enumerate(self._played[self._context.rank]):
            turn = played.turns.get(place)
            if turn is None:
                # No change. There are empty places only with noise, with which a model has no buffers.
                yield [torch.zeros_like(parameter) for parameter in start.parameters]
                continue
            sums = self._client.play(turn, number, rate)
            deltas = self._client.model_state.deltas(start)
            norm, clip = nn.utils.get_total_norm(deltas).double(), self._clients.clip
            clip_factor = norm.new_full((), 1.0) if clip is None else (clip / norm).clamp(max=1.0)
            for delta in deltas:
                delta.mul_((clip_factor * turn.factor).float())
            numbers[row] = torch.stack([*sums[:3], norm, (clip_factor < 1).double(), norm.new_full((), 1.0)])
            changes += [self._client.model_state.changes(start) * turn.factor] if has_buffers else []
            yield deltas
        self.clock.enter(EXCHANGE)

    @property
    def _played(self) -> list[range]:
        """Every worker's places."""
        return [shard_range(rank, self._context.world_size, self._places) for rank in range(self._context.world_size)]

    @cached_property
    def _means(self) -> ModelMeans:
        return ModelMeans(self._outer.model_state, self._played, self._context.rank)
