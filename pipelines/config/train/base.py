"""Settings of `train` for every strategy: how the model is trained, on how many workers, and how a run recovers from failures. Imports no
torch."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, NonNegativeInt, PositiveFloat, PositiveInt, Tag, model_validator

from pipelines.config.effects import OnlyInRun, OnlyWith, is_given, is_on_one_worker
from pipelines.config.section import Section, Seed, Text, expand_kind
from pipelines.config.train.changes import TrainChange, check_changes, value_after
from pipelines.config.train.init_from import InitFrom, NamedInitFrom

PLACEMENT = frozenset(
    {"workers", "parallel", "use_gpu", "cpus_per_worker", "max_failures", "resize_seconds", "timeout_seconds"}
    | {"balance", "profile", "storage", "checkpoint", "cache_bytes", "prefetch_bytes"}
)
"""Settings that determine where and how a training runs. They change neither the rows of a step nor, with `exact` on one kind of processor,
the weights."""
FOR_EVERY_TASK = PLACEMENT | {"seed", "shards", "fold", "monitor"}
"""Settings whose meaning is the same for a network and for trees."""
MOST_STEPS = 1_000
"""Of a profile: a browser shows a trace of so many."""
_WITH_STEPS = OnlyWith(".steps", fits=is_given, remedy="set train.profile.steps to the first and the last, such as [50, 60]")


class Lora(Section):
    """Low-rank adaptation (Hu et al. 2021): of the linear layers that match, a product of two small matrices is trained in place of the
    weight, and added to it at the end. The logged model is an ordinary one."""

    rank: PositiveInt = 8
    """Columns of the one matrix, and rows of the other."""
    alpha: PositiveFloat = 16.0
    """The product is multiplied by alpha / rank."""
    targets: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Names of linear layers, or patterns of them such as `*.attention.self.query`."""


class Profile(Section):
    """Steps that torch's profiler records. The model does not depend on it."""

    steps: tuple[PositiveInt, PositiveInt] | None = None
    """The first and the last step to record, counted from 1, such as [50, 60]: traces for Perfetto, and a table of the operators that
    take longest, are filed in the run. By default none is recorded."""
    ranks: Annotated[tuple[NonNegativeInt, ...], _WITH_STEPS] = (0,)
    """Ranks of the workers whose steps are recorded."""
    memory: Annotated[bool, _WITH_STEPS] = False
    """Records memory in these steps as well: on a GPU, a snapshot of torch's allocator; without one, the peak of resident memory in each
    phase of a step."""

    @model_validator(mode="after")
    def _steps_are_a_range(self) -> "Profile":
        if self.steps is None:
            return self
        first, last = self.steps
        if last < first:
            raise ValueError(f"steps is {[first, last]}; write the smaller number first")
        if last - first >= MOST_STEPS:
            raise ValueError(
                f"steps is {[first, last]}, {last - first + 1:,} steps; record at most {MOST_STEPS:,}, whose trace fits a browser"
            )
        return self


Workers = Annotated[
    Annotated[PositiveInt, Tag("number")] | Annotated[tuple[PositiveInt, PositiveInt], Tag("range")],
    Discriminator(lambda value: "range" if isinstance(value, list | tuple) else "number"),
]


def _only_strategies_with(attribute: str, values: tuple[Any, ...] = (), unless: Callable[[Any], bool] = lambda config: False) -> OnlyWith:
    """A condition that the settings of the strategy say so of themselves."""

    def remedy() -> str:
        from pipelines.config.train.strategy import strategy_kinds_with  # noqa: PLC0415, which reads this module

        return f"set train.strategy to {' or '.join(strategy_kinds_with(attribute))}"

    return OnlyWith(
        "train.strategy", fits=lambda strategy, _: bool(getattr(strategy, attribute)), remedy=remedy, values=values, unless=unless
    )


def _unless_epochs(more_than: Callable[[Any], int], remedy: str, values: tuple[Any, ...] = ()) -> OnlyWith:
    """A condition that there are more epochs than this, or as many as somebody chose: a config is tried with few."""

    def has_enough(config: Any) -> bool:
        return "epochs" in config.train.model_fields_set or bool(config.train.epochs > more_than(config.train))

    return OnlyWith("train.epochs", unless=has_enough, remedy=remedy, values=values)


_WITH_A_RANGE_OF_WORKERS = OnlyWith(
    "train.workers",
    fits=lambda workers, _: not isinstance(workers, int),
    unless=is_on_one_worker,
    remedy="set train.workers to a range such as [1, 4]",
)
_AUTO_WITH_SEVERAL_WORKERS = OnlyWith(
    "train.workers",
    fits=lambda workers, _: (workers if isinstance(workers, int) else workers[1]) > 1,
    remedy="set train.workers to 2 or more",
    values=("auto",),
)
_HAS_VALIDATION = OnlyInRun(
    lambda run, _: run.validation_rows > 0,
    "is {value}, but the split validation of {run.place} has no rows; unset it, or add the split",
)
_HAS_BATCH_NORM = OnlyInRun(
    lambda run, _: run.has_batch_norm(),
    "is true, but the model has no batch norm; remove it, or use a model that has, such as task.batch_norm of tabular",
)
_Balancing = Annotated[
    Literal["equal", "auto"],
    _AUTO_WITH_SEVERAL_WORKERS,
    _only_strategies_with("balances", values=("auto",)),
]


class BalanceSettings(Section):
    """How shards are dealt to workers. The rows of a step do not depend on it. The name of a kind alone is short for its defaults:
    `balance: auto`."""

    kind: _Balancing = "auto"
    """`equal` numbers, or `auto` for numbers in proportion to the workers' measured speed, dealt anew when it changes."""
    leave_out: bool = False
    """For an elastic group: continue without the machine of a worker that stays slower than a third of the median."""

    @model_validator(mode="after")
    def _leaving_out_is_automatic(self) -> "BalanceSettings":
        if self.leave_out and self.kind == "equal":
            raise ValueError("leave_out is true, but kind is equal, which measures no worker's speed; remove kind, or leave_out")
        return self


class ParallelSettings(Section):
    """Who chooses the layout of a training. The name of a kind alone is short for its defaults: `parallel: auto`."""

    kind: Literal["fixed", "auto"] = "auto"
    """`fixed` is as the config has it. `auto` chooses `workers`, and what may change of the strategy when a run resumes, such as the
    degrees of `sharded`: when the command starts, by the fastest plan for the GPUs or cores of the Ray cluster, or of this machine. A
    number of `workers` that is given stays."""
    replan: Annotated[bool, OnlyWith(".kind", ("auto",))] = False
    """Whether the run changes its layout once its steps show that another would save more time than a restart takes: it saves, and goes on
    with the same rows. Without, it only says so."""


NamedParallel = Annotated[ParallelSettings, BeforeValidator(expand_kind)]
NamedBalance = Annotated[BalanceSettings, BeforeValidator(expand_kind)]


class Checkpoint(Section):
    """When the state of a run is saved, and how many checkpoints are kept."""

    every_steps: PositiveInt | None = None
    """Steps between checkpoints; by default, one is saved at the end of each epoch."""
    every_seconds: Annotated[float, Field(gt=0)] | Literal["auto"] | None = None
    """Seconds between checkpoints; with `every_steps` as well, whichever is due first. `auto` is the interval at which saves and failures
    together cost least, by how long training has waited for the last save."""
    failure_hours: Annotated[float, Field(gt=0), OnlyWith(".every_seconds", ("auto",))] = 24.0
    """With `every_seconds: auto`: mean hours between failures of the run, by whatever ends it. `lockstep plan` says how many to expect of
    machines."""
    keep: PositiveInt = 2
    """Number of newest checkpoints to keep; with each, the best one until then is kept too."""


class Training(Section):
    """The settings of `train` that do not depend on the strategy."""

    # Where training runs: none of these changes the rows of a step.
    workers: Workers = 1
    """Number of Ray Train workers, one per GPU. `[min, max]` is an elastic group: it shrinks when machines fail and grows when they
    return."""
    parallel: NamedParallel = ParallelSettings(kind="fixed")
    """How workers share a step: `fixed`, which is the default, `auto`, or a section with its settings."""
    use_gpu: Literal["auto"] | bool = "auto"
    """`auto` uses GPUs if the Ray cluster has one for each worker."""
    cpus_per_worker: PositiveInt = 1
    """CPU cores of each worker, the number of threads that torch uses, and the most that decode rows."""
    max_failures: NonNegativeInt = 3
    """Maximum number of restarts from the last checkpoint after a worker has failed."""
    balance: NamedBalance = BalanceSettings(kind="equal")
    """How shards are dealt to workers: `equal`, which is the default, `auto`, or a section with its settings. The rows of a step do not
    depend on it."""
    resize_seconds: Annotated[
        float,
        Field(gt=0),
        _WITH_A_RANGE_OF_WORKERS,
    ] = 60.0
    """Interval at which an elastic group checks whether it can grow; it grows by restarting from the last checkpoint."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 300.0
    """Timeout of a collective operation. When it is exceeded, the attempt fails with an error that names the missing worker."""
    storage: Text = "runs"
    """Folder or URI of the checkpoints."""
    checkpoint: Checkpoint = Checkpoint()
    """When checkpoints are saved, and how many are kept."""
    profile: Profile = Profile()
    """Steps that torch's profiler records, and on which workers."""

    # The order of rows.
    seed: Seed = 0
    """Seed of the order of rows, the initial weights, dropout, and all other random numbers."""
    shards: PositiveInt = 8
    """Logical workers: their number is fixed for a run, and `workers` may be any number up to it."""
    global_batch: Annotated[PositiveInt, Field(le=2**20)] = 512
    """Rows of one optimizer step, over all workers and accumulated passes. The upper bound exists because `ddp` counts rows in float32."""
    shuffle_window: Annotated[PositiveInt, OnlyWith(".shuffle", (True,)), _only_strategies_with("reads_in_order")] = 4
    """Row groups that are shuffled together within a shard, or slices of row groups if the shard has fewer than 16. A larger window
    shuffles better and needs more memory."""
    shuffle: bool = True
    """Shuffles the rows anew in each epoch; with false, they keep the order in which ETL wrote them."""
    remainder: Annotated[Literal["drop", "keep"], _only_strategies_with("reads_in_order")] = "drop"
    """What happens to the last rows of an epoch if they do not fill a global batch: `drop` skips them, `keep` makes a smaller step."""
    cache_bytes: NonNegativeInt = 1 * 2**30
    """Cache of decoded rows per worker. If all rows of its shards fit, the worker keeps them in memory after the first epoch."""
    prefetch_bytes: PositiveInt = 256 * 2**20
    """Decoded rows that each worker reads ahead."""

    # How the model is trained.
    fold: PositiveInt | None = None
    """With `dataset.split.folds`, the fold whose model is trained; those of a second repeat follow the folds of the first. By default, the
    models of all folds are trained, one after another, as runs inside one run."""
    epochs: PositiveInt = 5
    """Passes over the training split. The model is validated after each, and the weights of the best epoch by `monitor` are kept."""
    max_steps: PositiveInt | None = None
    """Total number of steps after which the run ends, if the epochs do not end before."""
    grad_accum_steps: PositiveInt = 1
    """Gradient accumulation: number of passes that one step is split into to save memory. A step still has `global_batch` rows."""
    optimizer: Literal["sgd", "adam", "adamw", "muon"] = "adamw"
    """`sgd` uses momentum; `adam` and `adamw` differ in weight decay; `muon` makes changes of matrices in hidden layers orthogonal, and is
    `adamw` for all other parameters."""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate at the peak of the schedule."""
    momentum: Annotated[float, Field(ge=0, lt=1), OnlyWith(".optimizer", ("sgd",))] = 0.9
    """Momentum of `sgd`."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Weight decay: decoupled from the gradient in `adamw` and `muon`, added to it in `sgd` and `adam`."""
    schedule: Annotated[
        Literal["constant", "cosine", "one_cycle", "step"],
        _unless_epochs(lambda train: train.step_epochs, "set train.epochs to more than train.step_epochs", values=("step",)),
    ] = "constant"
    """Schedule of the learning rate; `cosine` and `one_cycle` end near 0."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of all steps during which the learning rate rises; for `one_cycle`, 0 means 0.3."""
    step_epochs: Annotated[PositiveInt, OnlyWith(".schedule", ("step",))] = 10
    """For the `step` schedule: epochs after which the learning rate is multiplied by `lr_gamma`."""
    lr_gamma: Annotated[float, Field(gt=0, lt=1), OnlyWith(".schedule", ("step",))] = 0.1
    """For the `step` schedule: factor of the learning rate."""
    changes: Annotated[
        tuple[TrainChange, ...],
        # A strategy that has no rate at all says itself what to do.
        _only_strategies_with("takes_changes", unless=lambda config: "train.changes" in config.train.strategy.rules),
    ] = ()
    """Other values of `lr` and `weight_decay` from an epoch on, such as `[{after_epoch: 4, lr: 0.002}]`. The schedule stays that of all
    epochs."""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """Maximum norm of the gradient; a larger gradient is scaled down to it."""
    ema_decay: Annotated[float, Field(ge=0, lt=1), _only_strategies_with("averages")] = 0.0
    """Decay of an exponential moving average of the weights over steps, such as 0.999: the averages are validated, tested and kept, while
    training goes on from the weights themselves. 0 for none."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """`auto` uses bf16 on GPUs that support it, or else fp32; `fp16` uses loss scaling. On GPUs, convolutions in fp32 multiply in TF32, as
    torch has it by default."""
    compile: bool = False
    """Compiles the model with torch.compile; under `ddp`, the loss with it."""
    sync_batch_norm: Annotated[
        bool, OnlyWith("task.batch_norm", (True,), unless=lambda config: not hasattr(config.task, "batch_norm")), _HAS_BATCH_NORM
    ] = False
    """Synchronized batch norm: statistics over the rows of all workers instead of each worker."""
    monitor: Annotated[str, _HAS_VALIDATION] = ""
    """Validation metric that selects the best epoch: any logged metric, or `loss`. By default `auc` for two classes, `accuracy` for
    more, `rmse` for a number, `mse` for a forecast, `ndcg_10` for the next item, `nats_per_token` for text. Ties are broken by the
    lower loss, then by the earlier epoch; where it is not defined, the loss decides."""
    early_stopping: Annotated[
        PositiveInt | None,
        _unless_epochs(lambda train: (train.early_stopping or 0) + 1, "set train.epochs to early_stopping + 2 or more"),
        _HAS_VALIDATION,
    ] = None
    """Number of epochs without improvement of `monitor` after which training ends."""
    init_from: NamedInitFrom = InitFrom()
    """Weights that initialize the model: the ID of an MLflow run, or a section that names a run, a file or a folder."""
    freeze: tuple[Text, ...] = ()
    """Parameters that are not trained, by their names or by patterns such as `network.0.*`. A batch norm whose parameters are all frozen
    keeps its running statistics, and normalises by them."""
    lora: Lora | None = None
    """Low-rank changes of some linear layers are trained in place of their weights; by default of none."""
    lr_factors: dict[Text, Annotated[float, Field(gt=0)]] = {}
    """Factors of the learning rate by names or patterns of parameters, such as `{"network.*": 0.1}`; 1 for those that none matches. Of
    several that match one, the first counts."""

    @property
    def workers_range(self) -> tuple[int, int]:
        """Minimum and maximum number of workers; equal unless the group is elastic."""
        return (self.workers, self.workers) if isinstance(self.workers, int) else self.workers

    @property
    def min_workers(self) -> int:
        return self.workers_range[0]

    @property
    def max_workers(self) -> int:
        return self.workers_range[1]

    def lr_after(self, epochs: int) -> float:
        """Learning rate at the peak of the schedule, once so many epochs are done."""
        return value_after(self.lr, "lr", self.changes, epochs)

    def weight_decay_after(self, epochs: int) -> float:
        """Weight decay, once so many epochs are done."""
        return value_after(self.weight_decay, "weight_decay", self.changes, epochs)

    @model_validator(mode="after")
    def _changes_are_in_order(self) -> "Training":
        check_changes(self.changes, self.epochs)
        return self

    @model_validator(mode="after")
    def _shards_fit(self) -> "Training":
        if self.global_batch % self.shards:
            below = self.global_batch // self.shards * self.shards
            raise ValueError(
                f"global_batch is {self.global_batch}; it must be a multiple of {self.shards}, the number of shards, "
                f"such as {below or self.shards} or {below + self.shards}"
            )
        if self.parallel.kind == "auto" and not isinstance(self.workers, int):
            raise ValueError(
                f"parallel is auto, which chooses a number of workers, and workers is {list(self.workers)}; remove one of them"
            )
        if self.min_workers > self.max_workers:
            raise ValueError(f"workers is {list(self.workers_range)}; write the smaller number first")
        if self.balance.leave_out and self.min_workers == self.max_workers:
            raise ValueError(
                f"balance.leave_out is true, but workers is {self.max_workers}, a fixed number; set workers to a range such as "
                f"[1, {self.max_workers}], or remove leave_out"
            )
        return self
