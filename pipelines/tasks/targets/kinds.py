"""Which kind of target a dataset and `task.loss` have. What does not fit is refused before ETL reads a row."""

from pipelines.config import TaskSettings
from pipelines.errors import ConfigError
from pipelines.tasks.data import Data
from pipelines.tasks.targets.base import QuantityTarget, Target, is_binary
from pipelines.tasks.targets.classes import BinaryTarget, ClassTarget
from pipelines.tasks.targets.counts import NegativeBinomialTarget, PoissonTarget
from pipelines.tasks.targets.ordinal import OrdinalTarget
from pipelines.tasks.targets.quantiles import QuantileTarget
from pipelines.tasks.targets.several import LabelsTarget, VectorTarget

_COUNTS = {"poisson": PoissonTarget, "negative_binomial": NegativeBinomialTarget}


def target_kind(data: Data, settings: TaskSettings | None = None) -> Target:
    """The kind of target of the dataset, with `task.loss` if it is not `auto`. Raises ConfigError if these do not fit."""
    column, loss = data.target, settings.loss if settings else "auto"
    fitted = data.encoders.get(column.name)
    encoder = fitted.feature["encoder"] if fitted else ""
    if settings and settings.target_weights and (not column.shape or data.classes):
        raise ConfigError(
            f"task.target_weights are weights of several numbers, but the target {column.name} has none; leave them out, or encode it with "
            "vector"
        )
    if column.shape:
        return _several_values(data, settings, loss)
    if settings is None or loss == "auto":
        kind = QuantityTarget if column.cardinality is None else BinaryTarget if is_binary(column) else ClassTarget
        return kind(data, settings)
    if loss in _COUNTS and encoder in ("count", ""):
        return _COUNTS[loss](data, settings)
    if loss == "quantiles" and column.cardinality is None:
        return QuantileTarget(data, settings)
    if loss == "ordinal" and encoder in ("label", "") and (column.cardinality or 0) > 2:
        _check_order(data)
        return OrdinalTarget(data, settings)
    needed = {"quantiles": "an encoder of a number, such as standardize", "ordinal": "label, for three classes or more"}.get(loss, "count")
    raise ConfigError(
        f"task.loss is {loss}, but the target {column.name} has the encoder {encoder or 'of another kind'}; encode it with {needed}, "
        "or set task.loss to auto"
    )


def _check_order(data: Data) -> None:
    """Raise ConfigError if the classes are texts that the config does not order, or whole numbers sorted as text."""
    fitted = data.encoders.get(data.target.name)
    is_ordered = not fitted or bool(fitted.feature.get("order"))
    if not is_ordered and not (all(map(_is_whole, data.classes)) and list(data.classes) == sorted(data.classes, key=int)):
        names = ", ".join(data.classes[:5])
        raise ConfigError(
            f"task.loss is ordinal, but the classes of the target {data.target.name} are sorted as text: {names}; name all, the lowest "
            "first, in order of its encoder label"
        )


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _several_values(data: Data, settings: TaskSettings | None, loss: str) -> Target:
    column = data.target
    if column.cardinality is not None or len(column.shape) > 1:
        raise ConfigError(
            f"the target {column.name} has shape {column.shape} per row, but this task predicts one value, several numbers or labels; "
            "encode it with binary, label, vector, labels, or an encoder of single numbers"
        )
    if loss != "auto":
        raise ConfigError(
            f"task.loss is {loss}, which is for one value, but the target {column.name} has {column.shape[0]} per row; set it to auto"
        )
    return (LabelsTarget if data.classes else VectorTarget)(data, settings)
