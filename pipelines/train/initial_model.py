"""The model before the first step: a function of the seed, and of weights from elsewhere, if the config names some.

`OriginReader` is the interface by which a task takes the models of other runs as parts of its own.

These are renamed, and some may fit by name and shape, and others not. A batch norm that would get a single row in the middle of a training
is refused before it starts.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pipelines.config import Config
from pipelines.config.messages.words import list_shapes, name_list
from pipelines.config.train.init_from import InitFrom
from pipelines.config.train.train import Train
from pipelines.data.loader import shard_range
from pipelines.data.versions.schema import ROW_KEYS
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError, TrainingError
from pipelines.runtime.compat.torch import BatchNorm
from pipelines.tasks.base import Batch, Task
from pipelines.train.buffers import is_single_row_error
from pipelines.train.fine_tuning import add_adapters, freeze
from pipelines.train.optimizers import parameter_groups

_WHY = "the model has a batch norm, which finds no variance in it"


class OriginReader(ABC):
    """Reads the runs whose models a task's model is made of. The driver calls it, and gives the workers the weights."""

    @abstractmethod
    def fill_in(self, config: Config, version: Version) -> Config:
        """The config with the settings of the task that the runs decide, such as digests of weights, which are part of a run's identity.

        Raises ConfigError for runs whose models do not fit this task on this dataset."""

    @abstractmethod
    def weights(self, config: Config, version: Version) -> dict[str, Tensor]:
        """All tensors of the task's model by name. Raises ConfigError unless they are those that were filled in."""


def first_model(settings: Train, task: Task, read_weights: Callable[[], Mapping[str, Tensor]] | None) -> nn.Module:
    """The model before the first step: a function of the seed, and of the weights that are read. Parameters to freeze are frozen,
    and layers to adapt adapted."""
    torch.manual_seed(settings.seed)
    model = task.model()
    if read_weights is not None:
        weights = read_weights()
        if settings.init_from.is_given:
            check_weights_fit(model, weights, settings.init_from)
        model.load_state_dict(weights, strict=settings.init_from.strict)
    prepare_fine_tuning(settings, model)
    return model


def prepare_fine_tuning(settings: Train, model: nn.Module) -> None:
    """Freeze parameters, and adapt layers, of a model that has its initial weights."""
    freeze(settings, model)
    add_adapters(settings, model)


def check_fine_tuning(settings: Train, model: nn.Module) -> None:
    """Raise ConfigError for patterns that do not fit the model, which may be without values. The model changes."""
    prepare_fine_tuning(settings, model)
    parameter_groups(settings, model)


def meta_model(task: Task) -> nn.Module:
    """The task's model on the meta device: names, shapes and dtypes, without memory for values or time to initialise them."""
    with torch.device("meta"):
        return task.model()


def check_weights_fit(model: nn.Module, weights: Mapping[str, Tensor], origin: InitFrom) -> None:
    """Raise TrainingError, naming the first five differences, if names or shapes of the weights are not the model's. Without `strict`,
    only those of the weights count."""
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    initial_shapes = {name: tensor.shape for name, tensor in weights.items()}
    names = shapes.keys() | initial_shapes.keys() if origin.strict else initial_shapes.keys()
    differing = sorted(name for name in names if shapes.get(name) != initial_shapes.get(name))
    if differing:
        raise TrainingError(
            f"train.init_from is {origin.origin}, whose weights differ from this model's in {', '.join(differing[:5])}"
            f"{' and others' if len(differing) > 5 else ''}; names and shapes must be the same: use the same `task` and features, or set "
            "train.init_from.strict to false, which loads the weights that fit"
        )


@dataclass(frozen=True)
class Fit:
    """Which weights a model starts with."""

    origin: str
    weights: dict[str, Tensor]
    """By the model's names, in its dtypes."""
    initialised: dict[str, list[int]]
    """Shapes of the model's tensors that stay as they are initialised."""
    unused: dict[str, list[int]]
    """Shapes of tensors that the model does not use, by their names before they are renamed."""
    casts: dict[str, str]
    """Tensors with another dtype in the model, and both dtypes, such as `bfloat16 to float32`."""

    def describe(self) -> str:
        """One line: how many tensors fit, and the first of those that do not."""
        total = len(self.weights) + len(self.initialised)
        parts = [f"starts from {self.origin}: {len(self.weights)} of the model's {total} tensors are loaded"]
        if self.initialised:
            parts.append(f"{len(self.initialised)} stay as initialised: {list_shapes(self.initialised)}")
        if self.unused:
            parts.append(f"{len(self.unused)} others are unused: {list_shapes(self.unused)}")
        return "; ".join([*parts, *(f"{count} are cast from {cast}" for cast, count in Counter(self.casts.values()).items())])

    def to_values(self) -> dict[str, Any]:
        """The whole lists in plain values, as a run's file has them."""
        lists = {"initialised": self.initialised, "unused": self.unused, "casts": self.casts}
        return {"origin": self.origin, "loaded": sorted(self.weights), **lists}


def fit_weights(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    settings: InitFrom,
    adopt_names: Callable[[nn.Module, Collection[str]], Mapping[str, str]] = lambda model, names: {},
) -> Fit:
    """Rename weights and choose those that fit the model, which may be on the meta device. `adopt_names` is that of the task.

    Raises TrainingError for a rule of `rename` that does nothing, if no tensor fits, or, with `strict`, if one does not.
    """
    old_names = rename(sorted(weights), settings)  # a file has them in any order
    adopted_names = adopt_names(model, old_names)
    uses = Counter(adopted_names.get(name, name) for name in old_names)  # a name that would be another's keeps its own
    old_names = {new if uses[new := adopted_names.get(name, name)] == 1 else name: old for name, old in old_names.items()}
    renamed = {name: weights[old] for name, old in old_names.items()}
    tensors = model.state_dict()
    fitting = {
        name: tensor
        for name, tensor in renamed.items()
        if name in tensors and tensor.shape == tensors[name].shape and _kind(tensor.dtype) == _kind(tensors[name].dtype)
    }
    initialised = {name: list(tensor.shape) for name, tensor in tensors.items() if name not in fitting}
    unused = {old: list(weights[old].shape) for name, old in old_names.items() if name not in fitting}
    if not fitting:
        raise TrainingError(
            f"train.init_from is {settings.origin}, of whose tensors none fits the model: there are {list_shapes(unused)}, and the model "
            f"has {list_shapes(initialised)}; set train.init_from.rename, or start from other weights"
        )
    if settings.strict:
        check_weights_fit(model, renamed, settings)
        _check_all_fit(fitting, renamed, tensors, settings)
    casts = {
        name: f"{_dtype_name(tensor)} to {_dtype_name(tensors[name])}"
        for name, tensor in fitting.items()
        if tensor.dtype != tensors[name].dtype
    }
    return Fit(settings.origin, {name: t.to(tensors[name].dtype) for name, t in fitting.items()}, initialised, unused, casts)


def _check_all_fit(fitting: Mapping[str, Tensor], weights: Mapping[str, Tensor], tensors: Mapping[str, Tensor], origin: InitFrom) -> None:
    """Raise TrainingError for a tensor whose dtype is of another kind than the model's."""
    if name := next((name for name in tensors if name not in fitting), ""):
        raise TrainingError(
            f"train.init_from is {origin.origin}, whose {name} is {_dtype_name(weights[name])}, and the model's is "
            f"{_dtype_name(tensors[name])}; convert the file, or set train.init_from.strict to false"
        )


def rename(names: Sequence[str], settings: InitFrom) -> dict[str, str]:
    """Names as they are, by the names that they get: the first rule whose expression a name begins with replaces what it matches.

    Raises TrainingError for a rule that no name begins with, and for two names that become one.
    """
    old_names: dict[str, str] = {}
    idle = dict(settings.rename)
    for name in names:
        rule = next((rule for rule in settings.rename if re.match(rule, name)), "")
        idle.pop(rule, None)
        new = re.compile(rule).sub(settings.rename[rule], name, count=1) if rule in settings.rename else name
        if new in old_names:
            raise TrainingError(
                f"train.init_from.rename makes {new} of both {old_names[new]} and {name} of {settings.origin}; make different names of them"
            )
        old_names[new] = name
    if idle:
        rule = next(iter(idle))
        raise TrainingError(
            f"train.init_from.rename: no name in {settings.origin} begins with {rule}, or an earlier rule has it; names are "
            f"{name_list(names, rule)}; correct the rule, or remove it"
        )
    return old_names


def _kind(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "truth"
    return "complex" if dtype.is_complex else "float" if dtype.is_floating_point else "integer"


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def has_batch_norm(settings: Train, task: Task, if_unknown: bool = False) -> bool:
    """Whether the model has a batch norm that is not frozen; it is unknown of one that can only be built with values."""
    model = _meta_model(settings, task)
    return if_unknown if model is None else _has_unfrozen_batch_norm(model)


def _has_unfrozen_batch_norm(model: nn.Module) -> bool:
    return any(isinstance(module, BatchNorm) and module.training for module in model.train().modules())


def check_single_rows(settings: Train, task: Task, rows: int) -> None:
    """Raise ConfigError if a pass over one row has no variance in this model, and an epoch of `rows` rows has such a pass.

    Without values, on the meta device. A model that computes only with values is checked by its first pass of a single row.
    """
    sizes = [settings.global_batch] if rows >= settings.global_batch else []
    if settings.remainder == "keep" and rows % settings.global_batch:
        sizes.append(rows % settings.global_batch)
    size = next((size for size in sizes if 1 in _fewest_pass_rows(settings, size)), None)
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


def _fewest_pass_rows(settings: Train, size: int) -> Iterator[int]:
    """The fewest rows that a batch norm gets in a pass with rows, in a step of `size` rows, for every number of workers: of each worker
    that has rows or, if batch norm is synchronised, of all together."""
    passes, shards = settings.grad_accum_steps, settings.shards
    ends = [shard * size // shards for shard in range(shards + 1)]
    for count in settings.strategy.blocks_of_shards(settings):
        blocks = (shard_range(unit, count, shards) for unit in range(count))
        rows_by_unit = [ends[block.stop] - ends[block.start] for block in blocks]
        if settings.sync_batch_norm and count > 1:
            totals = [sum(rows // passes + (number < rows % passes) for rows in rows_by_unit) for number in range(passes)]
            yield min(total for total in totals if total)
        else:
            yield from (rows // min(passes, rows) for rows in rows_by_unit if rows)


def _refuses_single_row(settings: Train, task: Task) -> bool:
    model = _meta_model(settings, task)
    if model is None or not _has_unfrozen_batch_norm(model):
        return False
    with suppress(NotImplementedError, RuntimeError), torch.device("meta"):
        columns = (*task.data.columns, *task.data.carried)
        row: Batch = {column.name: torch.zeros((1, *column.shape), dtype=getattr(torch, column.dtype)) for column in columns}
        if task.draws:
            row[ROW_KEYS] = torch.zeros(1, dtype=torch.int64)
        try:
            task.loss(model.train(), row)
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
