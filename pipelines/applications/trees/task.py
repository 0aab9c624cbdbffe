"""The task `trees`: gradient-boosted decision trees over the columns of a table."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import nn

from pipelines.applications.trees.contributions import contributions
from pipelines.applications.trees.forest import Forest, column_inputs
from pipelines.applications.trees.settings import TreesSettings as Settings
from pipelines.config.messages.did_you_mean import suggestion
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.explanation import Explanation
from pipelines.tasks.supervised import Supervised
from pipelines.tasks.targets.base import is_binary

_ORDERED = ("quantile",)
"""Encoders whose indices are in the order of the values."""


@dataclass(frozen=True)
class TreeInput:
    """One number that trees decide on."""

    column: str
    values: int
    """Number of categories; 0 for a number."""
    direction: int
    """1 if the output may only rise with it, -1 if it may only fall, else 0."""
    is_missing: bool
    """Whether it may be NaN."""


class Trees(Supervised):
    settings: Settings
    explains = True
    takes_terms = True

    def __init__(self, settings: Settings, data: Data) -> None:
        """Raises ConfigError if a monotone feature is none, or is a text."""
        super().__init__(settings, data)
        columns = {column.name: column for column in data.features}
        for name in settings.monotone:
            if name not in columns:
                remedy = suggestion(name, columns, f"name one of {', '.join(list(columns)[:5])}")
                raise ConfigError(f"task.monotone has {name}, which is no feature of the dataset; {remedy}")
            if columns[name].counted:
                raise ConfigError(f"task.monotone has {name}, whose terms have no order; remove it from monotone")

    def model(self) -> nn.Module:
        """A forest without trees."""
        values = max(input.values for input in self.inputs)
        return Forest(self.data.features, self.outputs, 2 * self.settings.leaves - 1, values, self.settings.terms)

    def check(self) -> None:
        """Raise ConfigError if a monotone feature has categories."""
        for input in self.inputs:
            if input.values and input.direction:
                raise ConfigError(
                    f"task.monotone has {input.column}, whose categories have no order; encode it as a number, or remove it from monotone"
                )

    @property
    def inputs(self) -> tuple[TreeInput, ...]:
        """The inputs in the order of `Forest.inputs`."""
        return tuple(input for column in self.data.features for input in self._column_inputs(column))

    def _column_inputs(self, column: TensorColumn) -> Iterator[TreeInput]:
        encoder = self.data.encoders[column.name].feature["encoder"] if column.name in self.data.encoders else ""
        is_category = column.cardinality is not None and not column.counted and not is_binary(column) and encoder not in _ORDERED
        values = column.cardinality if is_category and (column.cardinality or 0) <= self.settings.categories else 0
        input = TreeInput(column.name, values or 0, self.settings.monotone.get(column.name, 0), column.missing)
        yield from [input] * column_inputs(column, self.settings.terms)

    def explain(self, model: nn.Module, rows: Batch) -> Explanation:
        assert isinstance(model, Forest), "the task makes it"
        inputs = model.inputs(rows)
        features = [self._raw_feature(input.column) for input in self.inputs]
        number = self.target.output_to_explain(model(rows).double()).numpy()
        shares = contributions(model, inputs.numpy())[np.arange(len(inputs)), number]
        return Explanation.sum_by_feature(features, model.importance(len(features)), shares)

    def _raw_feature(self, column: str) -> str:
        """The columns of the query that a tensor column is encoded from."""
        return ", ".join(self.data.encoders[column].inputs) if column in self.data.encoders else column
