"""Refuses, before a training starts, a batch norm that would get a single row in the middle of it."""

from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import nn

from pipelines.config.train.train import Train
from pipelines.data.loader import shard_range
from pipelines.data.versions.schema import ROW_KEYS
from pipelines.errors import ConfigError
from pipelines.runtime.compat.torch import BatchNorm
from pipelines.tasks.base import Batch, Task
from pipelines.train.batch_norm import is_single_row_error
from pipelines.train.fine_tuning import freeze
from pipelines.train.initial_model import meta_model

_WHY = "the model has a batch norm, which finds no variance in it"


def may_have_batch_norm(settings: Train, task: Task) -> bool:
    """Whether the model has a batch norm that is not frozen; true for one that can only be built with values."""
    return _meta_model(settings, task) is None or has_batch_norm(settings, task)


def has_batch_norm(settings: Train, task: Task) -> bool:
    """Whether the model has a batch norm that is not frozen; false for one that can only be built with values."""
    model = _meta_model(settings, task)
    return model is not None and any(isinstance(module, BatchNorm) and module.training for module in model.train().modules())


def check_single_rows(settings: Train, task: Task, rows: int) -> None:
    """Raise ConfigError if a pass over one row has no variance in this model, and an epoch of `rows` rows has such a pass.

    Without values, on the meta device. A model that computes only with values is checked by its first pass of a single row.
    """
    size = next((size for size in _step_sizes(settings, rows) if 1 in _fewest_pass_rows(settings, size)), None)
    if size is None or not _refuses_single_row(settings, task):
        return
    if size == settings.global_batch:
        shards = "" if settings.sync_batch_norm else "train.shards or "  # else a pass has the rows of all workers
        remedy = f"raise train.global_batch, or lower {shards}train.grad_accum_steps"
        raise ConfigError(f"train.global_batch is {size}, of which a pass would have a single row, and {_WHY}; {remedy}")
    raise ConfigError(
        f"train.remainder is keep, and the {rows:,} rows of an epoch leave {size} for its last step, of which a pass would have a single "
        f"row, and {_WHY}; set train.remainder to drop, or change train.global_batch"
    )


def _step_sizes(settings: Train, rows: int) -> Iterator[int]:
    """The sizes of an epoch's steps, in rows."""
    if rows >= settings.global_batch:
        yield settings.global_batch
    if settings.remainder == "keep" and rows % settings.global_batch:
        yield rows % settings.global_batch


def _fewest_pass_rows(settings: Train, size: int) -> Iterator[int]:
    """The fewest rows that a batch norm gets in a pass with rows, in a step of `size` rows, for every number of workers: of each worker
    that has rows or, if batch norm is synchronised, of all together."""
    passes = settings.grad_accum_steps
    for count in settings.strategy.blocks_of_shards(settings):
        rows_by_unit = _rows_by_unit(settings, size, count)
        if settings.sync_batch_norm and count > 1:
            totals = [sum(rows // passes + (number < rows % passes) for rows in rows_by_unit) for number in range(passes)]
            yield min(total for total in totals if total)
        else:
            yield from (rows // min(passes, rows) for rows in rows_by_unit if rows)


def _rows_by_unit(settings: Train, size: int, count: int) -> list[int]:
    """The rows of each of `count` blocks of shards in a step of `size` rows."""
    ends = [shard * size // settings.shards for shard in range(settings.shards + 1)]
    blocks = (shard_range(unit, count, settings.shards) for unit in range(count))
    return [ends[shards.stop] - ends[shards.start] for shards in blocks]


def _refuses_single_row(settings: Train, task: Task) -> bool:
    model = _meta_model(settings, task)
    if model is None or not may_have_batch_norm(settings, task):
        return False
    with suppress(NotImplementedError, RuntimeError), torch.device("meta"):
        try:
            task.loss(model.train(), _single_row(task))
        except ValueError as error:
            return is_single_row_error(error)
    return False


def _meta_model(settings: Train, task: Task) -> nn.Module | None:
    """The model without values, in which what `train.freeze` names is frozen."""
    with suppress(NotImplementedError, RuntimeError):
        model = meta_model(task)
        freeze(settings, model)
        return model
    return None


def _single_row(task: Task) -> Batch:
    columns = (*task.data.columns, *task.data.carried)
    batch = {column.name: torch.zeros((1, *column.shape), dtype=getattr(torch, column.dtype), device="meta") for column in columns}
    return {**batch, ROW_KEYS: torch.zeros(1, dtype=torch.int64, device="meta")} if task.draws else batch
