"""`train`: how the model is fitted, on how many workers, and how a run survives."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, NonNegativeInt, PositiveInt, Tag, model_validator

from pipelines.config.section import Section, Seed, Text
from pipelines.config.strategies import StrategyName

Workers = Annotated[
    Annotated[PositiveInt, Tag("number")] | Annotated[tuple[PositiveInt, PositiveInt], Tag("range")],
    Discriminator(lambda value: "range" if isinstance(value, list | tuple) else "number"),
]


class Checkpoint(Section):
    """When the run's state is saved and how much of it is kept."""

    every_steps: PositiveInt | None = None
    """By default at the end of every epoch."""
    every_seconds: Annotated[float, Field(gt=0)] | None = None
    """The first of the two that is due."""
    keep: PositiveInt = 2
    """The newest so many are kept, and the best."""


class Train(Section):
    # Where it runs: none of these changes which rows make up a step.
    workers: Workers = 1
    """Ray Train workers, one per GPU; `[min, max]` is a group that shrinks when machines go and grows when they return."""
    use_gpu: Literal["auto"] | bool = "auto"
    """`auto` takes GPUs when the Ray cluster has one for each worker."""
    cpus_per_worker: PositiveInt = 1
    """Also the number of threads torch computes with."""
    max_failures: NonNegativeInt = 3
    """So many times a group of workers that lost one is started again from the last checkpoint."""
    resize_seconds: Annotated[float, Field(gt=0)] = 60.0
    """A group of `[min, max]` workers looks so often whether it can grow; growing goes back to the last checkpoint."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 300.0
    """A collective operation that takes longer ends the attempt with an error that names the worker it waited for."""
    storage: Text = "runs"
    """Folder or URI of checkpoints."""
    checkpoint: Checkpoint = Checkpoint()
    """When the run's state is saved."""

    # The order of rows.
    seed: Seed = 0
    """Of the order of rows, the first weights, dropout, and whatever else is drawn."""
    shards: PositiveInt = 8
    """Logical workers: fixed for a run, while `workers` may be anything up to it."""
    global_batch: Annotated[PositiveInt, Field(le=2**20)] = 512
    """Rows of one optimizer step, over all workers and accumulated passes. `ddp` counts them in float32, hence the bound."""
    window: PositiveInt = 4
    """Row groups, or slices of them where a shard has fewer than 16, that are shuffled together within a shard: more is a better
    shuffle and more memory."""
    shuffle: bool = True
    """Whether every epoch has an order of its own; false takes the rows as ETL wrote them."""
    remainder: Literal["drop", "keep"] = "drop"
    """What becomes of the rows of an epoch that do not fill a global batch; `keep` makes them one smaller step."""
    cache_bytes: NonNegativeInt = 1 * 2**30
    """A worker whose shards' decoded rows fit keeps them in memory after the first epoch."""
    prefetch_bytes: PositiveInt = 256 * 2**20
    """Decoded rows read ahead of the step, per worker."""

    # How the model is fitted.
    strategy: StrategyName = "ddp"
    """`ddp`: a worker's shards in one pass; for other numbers of workers weights differ by rounding, with dropout or batch norm by
    more. `exact`: a pass per shard; they agree bit for bit."""
    threads_per_shard: PositiveInt = 1
    """Of `exact`: one and two threads give different sums, so their number decides the model."""
    epochs: PositiveInt = 5
    """Passes over the training split; each is validated, and the weights of the best one by `monitor` are kept."""
    max_steps: PositiveInt | None = None
    """Ends the run early, after so many steps in all."""
    accumulate: PositiveInt = 1
    """Passes that one step is split into, to save memory; the step's rows stay `global_batch`."""
    optimizer: Literal["sgd", "adam", "adamw"] = "adamw"
    """`sgd` has momentum; `adam` and `adamw` differ in how they decay weights."""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """The schedule's peak."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Of sgd."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Decoupled from the gradient by adamw; added to it by sgd and adam."""
    schedule: Literal["constant", "cosine", "one_cycle", "step"] = "constant"
    """Of the learning rate from step to step: cosine and one_cycle end near 0."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of all steps over which the learning rate rises; `one_cycle` takes 0.3 when it is 0."""
    step_epochs: PositiveInt = 10
    """Of the `step` schedule: the learning rate is multiplied by `step_factor` after so many epochs."""
    step_factor: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Of the `step` schedule: what the learning rate is multiplied by."""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """Gradients are scaled down to this norm."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """`auto` is bf16 on a GPU that has it, else fp32; `fp16` scales the loss."""
    compile: bool = False
    """Compiles the model with torch.compile."""
    sync_batch_norm: bool = False
    """Batch norm over the rows of all workers, not of each."""
    monitor: str = ""
    """Validation metric that picks the best epoch: one that the curves show, or `loss`. By default the task's: `auc` of two classes,
    `accuracy` of more, `rmse` of a number, `mse` of a forecast, `ndcg_10` of a next item, `nats_per_token` of text. Of equal epochs
    the one of the lower loss is the best, then the earlier."""
    early_stopping: PositiveInt | None = None
    """Epochs without a better `monitor` after which training ends."""
    init_from: str = ""
    """Id of an MLflow run whose weights the model starts from."""

    @property
    def workers_range(self) -> tuple[int, int]:
        """The fewest and the most workers; equal unless the group is elastic."""
        return (self.workers, self.workers) if isinstance(self.workers, int) else self.workers

    @property
    def min_workers(self) -> int:
        return self.workers_range[0]

    @property
    def max_workers(self) -> int:
        return self.workers_range[1]

    @model_validator(mode="after")
    def _shards_fit(self) -> "Train":
        if self.global_batch % self.shards:
            below = self.global_batch // self.shards * self.shards
            raise ValueError(
                f"global_batch is {self.global_batch}, which {self.shards} shards do not divide; "
                f"take {below or self.shards} or {below + self.shards}"
            )
        if self.min_workers > self.max_workers:
            raise ValueError(f"workers is {list(self.workers_range)}; the smaller number comes first")
        if self.max_workers > self.shards:
            raise ValueError(f"workers is {self.max_workers}, more than the {self.shards} shards; a worker owns at least one")
        microbatch = self.global_batch // self.shards
        if self.accumulate > microbatch:
            raise ValueError(f"accumulate is {self.accumulate}, more than the {microbatch} rows a shard gives to a step")
        if self.strategy == "exact" and self.sync_batch_norm:
            raise ValueError("sync_batch_norm sums over workers, so strategy exact cannot have it; set it to false, or strategy to ddp")
        return self
