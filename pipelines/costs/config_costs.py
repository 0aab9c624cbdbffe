"""Costs of the model that a config trains: with the columns of its dataset version, or before there is one, with those that its settings
describe."""

from functools import partial

from pipelines.config import Config
from pipelines.costs.layers import model_costs
from pipelines.costs.operators import count_pass
from pipelines.data.loader import Loader, Order
from pipelines.data.versions.versions import Version, include_passthrough
from pipelines.errors import ConfigError
from pipelines.planning.model_costs import ModelCosts
from pipelines.tasks.base import Batch, Task
from pipelines.tasks.bind import build_task, placeholder_task

ROWS = 4
"""Of the pass that is counted: batch norm needs two, and costs per row do not depend on them."""


def config_costs(config: Config, version: Version | None = None) -> ModelCosts:
    """Costs per row of the model that `config` trains on `version`; without one, labels have three classes where no setting says how many,
    and vocabularies are as large as settings allow.

    Raises ConfigError for a model that has no parameters to train by gradients, that needs a version's rows or columns to be counted, or
    that does not fit them."""
    build = partial(_build_task, config, version)
    counted = count_pass(build, ROWS, partial(_first_rows, version, build()) if version else None)
    costs = model_costs(config.name, counted)
    if not costs.parameters:
        raise ConfigError(
            f"task {config.task.kind} of {config.name} has no parameters that gradients train, and a plan is of steps that do; give a "
            "config whose task is a network"
        )
    return costs


def _build_task(config: Config, version: Version | None) -> Task:
    task = build_task(config.task, version.manifest) if version else placeholder_task(config, is_largest=True)
    if task is None:
        raise ConfigError(
            f"the columns of {config.name} depend on its rows, and there is no dataset version; make it with jobs/etl.py first"
        )
    return task


def _first_rows(version: Version, task: Task, rows: int) -> Batch:
    columns = include_passthrough(version, task.settings.passthrough)
    order = Order(shards=1, global_batch=rows, shuffle=False)
    return next(iter(Loader(columns, "train", order, range(1), row_keys=task.draws)))
