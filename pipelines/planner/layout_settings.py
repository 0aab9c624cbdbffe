"""A layout as settings of `train`: those that a config needs to train with it."""

from typing import Any

from pipelines.config import Config
from pipelines.config.train.strategy import STRATEGIES
from pipelines.config.train.train import Train
from pipelines.planning.layouts import ParallelLayout


def layout_settings(layout: ParallelLayout, config: Config | None = None) -> dict[str, Any]:
    """The settings of `train` that make up a layout; those that have their defaults stand there only if `config` has others."""
    settings: dict[str, Any] = {"workers": layout.workers}
    if config and config.train.strategy.rows_per_pass(config.train):
        return settings
    settings["strategy"] = _strategy(layout)
    shards = config.train.shards if config else Train.model_fields["shards"].default
    if layout.readers > shards:  # the order of rows is another one then
        settings["shards"] = layout.readers
    if layout.accumulation > 1 or (config and config.train.grad_accum_steps > 1):
        settings["grad_accum_steps"] = layout.accumulation
    if layout.compile or (config and config.train.compile):
        settings["compile"] = layout.compile
    return settings


def _strategy(layout: ParallelLayout) -> str | dict[str, Any]:
    """The first strategy that has such layouts, by its name alone if its settings have their defaults."""
    answers = ((kind, strategy.settings_for_layout(layout)) for kind, strategy in STRATEGIES.by_name.items())
    kind, settings = next((kind, settings) for kind, settings in answers if settings is not None)
    return {"kind": kind, **settings} if settings else kind
