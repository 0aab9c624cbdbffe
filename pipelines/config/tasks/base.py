"""Base classes of the settings of tasks: what every task has. Imports no torch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, NonNegativeFloat, model_validator

from pipelines.config.effects import OnlyWith
from pipelines.config.section import Section
from pipelines.config.tuning import Dimension, around

if TYPE_CHECKING:
    from pipelines.config.train.base import Training


def _kinds_that_smooth() -> str:
    from pipelines.config.tasks.task import TASKS  # noqa: PLC0415, which reads this module

    return f"set task.kind to {' or '.join(kind for kind, settings in TASKS.by_name.items() if settings.smooths_labels)}"


def _drop_used(use: dict[str, bool]) -> dict[str, bool]:
    """Without those that are used, which is the default: the identity of a model does not depend on it."""
    return {name: is_used for name, is_used in use.items() if not is_used}


Probability = Annotated[float, Field(ge=0, lt=1)]


class TaskSettings(Section):
    """Base class of the settings of all tasks. Derive your own from it, in a module that does not import torch."""

    implementation: ClassVar[str]
    """`module:Class` of the `pipelines.tasks.base.Task` that these settings configure; imported only by workers."""
    needs_own_strategy: ClassVar[bool] = False
    """Whether only a strategy trains the task whose settings have its kind in `tasks`; else, all do that descend gradients."""
    takes_missing: ClassVar[bool] = False
    """Whether the model takes NaN in columns of numbers, as encoders make it with `impute: keep`."""
    smooths_labels: ClassVar[bool] = False
    """Whether `label_smoothing` changes the loss of training, as that of a task that derives from `Supervised`."""
    has_average: ClassVar[bool] = False
    """Whether models of the task can be averaged, as those of a task of this project that derives from `Supervised`."""
    train_defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings of `train` in place of their usual defaults."""
    origin_reader: ClassVar[str] = ""
    """`module:Class` of the `pipelines.train.initial_model.OriginReader` of a task whose model is made of those of other runs."""
    origins_setting: ClassVar[str] = ""
    """The setting that names the runs whose models the task combines, so that a search may end in it."""
    filled_in: ClassVar[frozenset[str]] = frozenset()
    """Settings that a training notes of those runs, whoever gives them."""
    kind: str
    """One of the built-in kinds, such as `tabular`, `module:function` that returns a network, or `module:Class` of your own settings."""
    class_weights: Literal["none", "balanced"] | tuple[NonNegativeFloat, ...] = "none"
    """Weights of the classes in the loss, for a target with classes: a list, or `balanced` for the inverse of the share of each class
    in the training split, of masks in its pixels."""
    label_smoothing: Annotated[Probability, OnlyWith("task", fits=lambda task, _: task.smooths_labels, remedy=_kinds_that_smooth)] = 0.0
    """For a target of classes: share of each label, such as 0.1, that training spreads over all classes alike (Szegedy et al. 2016). The
    losses of validation and test have the labels as they are."""
    loss: Literal["auto", "poisson", "negative_binomial", "quantiles", "ordinal"] = "auto"
    """What the loss takes the target for. `auto` follows from its encoder: cross-entropy for classes and labels, squared error for
    numbers. `poisson` and `negative_binomial` are for counts (encoder `count`), `quantiles` for a number with a lower and an upper bound,
    `ordinal` for classes with an order (encoder `label`)."""
    quantiles: Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], OnlyWith(".loss", ("quantiles",))] = (0.1, 0.5, 0.9)
    """With `loss: quantiles`: the shares of values that are below each prediction, ascending."""
    target_weights: dict[str, NonNegativeFloat] = {}
    """Weights in the loss of the numbers of a target with several (encoder `vector`), by column; 1 for those that are not named."""
    metrics: tuple[str, ...] = ()
    """Further metrics of validation and test, which `train.monitor` may name too: average_precision for two classes; balanced_accuracy
    and an F-beta, such as f1, f2 or f0_5, for classes; mape for a number. They do not change the model."""
    sample_weight: str = ""
    """Column of `dataset.passthrough` with the encoder `weight`: the weight of each row in the loss, beside that of its class. The mean is
    that of the global batch's weights, on any number of workers. Other metrics count every row once."""
    use: Annotated[dict[str, bool], AfterValidator(_drop_used)] = Field({}, exclude_if=lambda use: not use)
    """Features of the dataset, such as `{fnlwgt: false}` for a model that leaves this one out, of the same version. All others are used."""
    slices: tuple[str, ...] = ()
    """Columns of the dataset for whose values the run's page shows results separately: features, the target or carried columns of
    categories, such as those of the encoders vocabulary, binary or quantile. They do not change the model."""

    @model_validator(mode="after")
    def _quantiles_ascend(self) -> "TaskSettings":
        if not self.quantiles or list(self.quantiles) != sorted(set(self.quantiles)):
            raise ValueError(f"quantiles is {list(self.quantiles)}; name each once, the lowest first, such as [0.1, 0.5, 0.9]")
        return self

    @classmethod
    def defaults_for_training(cls, task: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of `train` in place of their usual defaults, for a task of these plain values."""
        return dict(cls.train_defaults)

    def search_space(self, train: "Training") -> dict[str, Dimension]:
        """The values that a search of a drafted config tries, by the dotted name of a setting: around those here and in `train`, which they
        contain. It may name settings without an effect, which whoever drafts leaves out. Empty if none suits every such task."""
        if self.needs_own_strategy:
            return {}
        space = {"train.lr": around(train.lr)}
        if train.weight_decay:
            space["train.weight_decay"] = around(train.weight_decay)
        if isinstance(dropout := getattr(self, "dropout", None), float):
            space["task.dropout"] = Dimension(uniform=(0.0, max(0.5, dropout)))
        return space

    @property
    def distributions(self) -> tuple[str, ...]:
        """Python distributions that the implementation imports beyond those of every model, which a served one then requires too."""
        return ()

    @property
    def fault(self) -> str:
        """Why these settings do not determine a model, as where a file is not there whose content does; empty if they do."""
        return ""

    @property
    def origins(self) -> dict[str, str]:
        """The digest of the weights of each model that this one is made of, by the ID of its run; filled in before a training."""
        return {}

    @property
    def left_out(self) -> tuple[str, ...]:
        """Features of the dataset that the model does not read."""
        return tuple(self.use)

    @property
    def pairs_rows(self) -> bool:
        """Whether training mixes pairs of rows: rows 2k and 2k + 1 of each pass."""
        return False

    @property
    def passthrough(self) -> tuple[str, ...]:
        """Columns of `dataset.passthrough` that batches of the task have, for its loss and its metrics."""
        return (self.sample_weight,) if self.sample_weight else ()

    @property
    def excluded_from_identity(self) -> set[str]:
        """Settings that change no model."""
        return {"slices", "metrics"}


class SequenceTaskSettings(TaskSettings):
    """Base class of the settings of tasks with a loss and metrics of their own, which have no target with classes or of another kind."""

    class_weights: Literal["none"] = "none"
    """Always `none`, because the task has no target with classes."""
    sample_weight: Literal[""] = ""
    """Always empty, because the task has a loss of its own."""
    loss: Literal["auto"] = "auto"
    """Always `auto`, because the task has a loss of its own."""
    target_weights: dict[str, NonNegativeFloat] = Field(default={}, max_length=0)
    """Always empty, because the task has a loss of its own."""
    metrics: tuple[()] = ()
    """Always empty, because the task has metrics of its own."""


def check_heads(width: int, heads: int, pieces: int = 1) -> None:
    """Raise ValueError unless attention heads share the `width` equally, and each divides its share into `pieces`."""
    multiple = heads * pieces
    if width % multiple:
        near = max(width // multiple, 1) * multiple
        raise ValueError(f"width is {width}; with {heads} heads it must be a multiple of {multiple}, such as {near}")
