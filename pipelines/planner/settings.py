"""A layout as settings of `train`: those that a config needs to train with it."""

from typing import Any

from pipelines.config import Config
from pipelines.config.train.train import Train
from pipelines.planning.layouts import DEGREES, ParallelLayout


def layout_settings(layout: ParallelLayout, config: Config | None = None) -> dict[str, Any]:
    """The settings of `train` that make up a layout; those that have their defaults stand there only if `config` has others."""
    settings: dict[str, Any] = {"workers": layout.workers, "strategy": _strategy(layout)}
    shards = config.train.shards if config else Train.model_fields["shards"].default
    if layout.readers > shards:  # the order of rows is another one then
        settings["shards"] = layout.readers
    if layout.accumulation > 1 or (config and config.train.grad_accum_steps > 1):
        settings["grad_accum_steps"] = layout.accumulation
    if layout.compile or (config and config.train.compile):
        settings["compile"] = layout.compile
    return settings


def _strategy(layout: ParallelLayout) -> Any:
    if layout.strategy != "sharded":
        return {"kind": layout.strategy, "compression": layout.compression} if layout.compression != "none" else layout.strategy
    degrees = {name: getattr(layout, name) for name in DEGREES if getattr(layout, name) > 1}
    settings: dict[str, Any] = {"kind": "sharded", "shard": layout.shard, **degrees}
    if layout.pipeline > 1:
        settings |= {"schedule": layout.schedule, "microbatches": layout.parts}
    if layout.checkpointing != "none":
        settings["activation_checkpointing"] = layout.checkpointing
    if not layout.reshard_after_forward and layout.pipeline == 1:
        settings["reshard_after_forward"] = False
    for name in ("reduce_every_pass", "offload"):
        if getattr(layout, name):
            settings[name] = True
    return settings


def config_layout(config: Config, workers: int) -> ParallelLayout:
    """The layout of a config as it stands, on that many workers. Strategies other than `ddp`, `exact` and `sharded` count as `ddp`, which
    sends as much in a step."""
    train = config.train
    rows = train.global_batch // max(1, train.strategy.readers(workers))
    common: dict[str, Any] = {
        "microbatch": max(1, rows // train.grad_accum_steps),
        "accumulation": train.grad_accum_steps,
        "compile": train.compile,
    }
    degrees = getattr(train.strategy, "degrees", None)
    if degrees is None:
        return ParallelLayout(replicate=workers, strategy="exact" if train.strategy.kind == "exact" else "ddp", **common)
    strategy: Any = train.strategy
    return ParallelLayout(
        **degrees(workers)._asdict(),
        schedule=strategy.schedule,
        checkpointing=strategy.activation_checkpointing,
        reshard_after_forward=strategy.reshard_after_forward,
        reduce_every_pass=strategy.reduce_every_pass,
        offload=strategy.offload,
        **common,
    )
