"""Creates the strategy that a config names, and its initial model."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from pipelines.config.plugins import import_class
from pipelines.config.train.init_from import InitFrom
from pipelines.config.train.train import Train
from pipelines.errors import ConfigError, TrainingError
from pipelines.tasks.base import Task
from pipelines.train.fine_tuning import add_adapters, freeze, parameter_groups
from pipelines.train.reduce.context import WorkerContext
from pipelines.train.strategy import Strategy


def strategy_class(settings: Train) -> type[Strategy]:
    """The class that `train.strategy` configures. Raises ConfigError if it cannot be imported or is not a Strategy."""
    try:
        return import_class(settings.strategy.implementation_for(settings), Strategy, "a strategy")  # type: ignore[type-abstract]
    except ValueError as error:
        raise ConfigError(f"train.strategy: {error}") from error


def create_strategy(
    settings: Train, task: Task, context: WorkerContext, read_weights: Callable[[], Mapping[str, Tensor]] | None = None
) -> Strategy:
    """The strategy that the config names, with a new model, or with one that starts from other weights, by name. They are read on the
    workers that hold a whole model.

    Raises TrainingError if the weights do not fit the model, ConfigError if the strategy cannot be imported or does not
    support the model.
    """
    return strategy_class(settings)(settings, task, partial(first_model, settings, task, read_weights), context)


def first_model(settings: Train, task: Task, read_weights: Callable[[], Mapping[str, Tensor]] | None) -> nn.Module:
    """The model before the first step: a function of the seed, and of the weights that are read. Parameters to freeze are frozen,
    and layers to adapt adapted."""
    torch.manual_seed(settings.seed)
    model = task.model()
    if read_weights is not None:
        weights = read_weights()
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
