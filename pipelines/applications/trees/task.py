"""The task `trees`: gradient-boosted decision trees over the columns of a table, and what each input contributes to an output, row by row.

Contributions are SHAP values, by LightGBM's TreeSHAP on the text of the same trees: Lundberg et al. 2020, "From local explanations to
global understanding with explainable AI for trees".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from torch import nn

from pipelines.applications.trees.forest import Forest, column_inputs
from pipelines.applications.trees.settings import TreesSettings as Settings
from pipelines.config.messages.words import suggestion
from pipelines.errors import ConfigError
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.base import Explanation
from pipelines.tasks.supervised import Supervised
from pipelines.tasks.targets.base import is_binary

_ORDERED = ("quantile",)
"""Encoders whose indices are in the order of the values."""
_CATEGORIES, _NAN_LEFT, _NAN = 1, 2, 8
"""Bits of LightGBM's `decision_type`: on categories; NaN goes left; NaN is a value of its own, and not 0."""


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
        inputs: list[TreeInput] = []
        for column in self.data.features:
            encoder = self.data.encoders[column.name].feature["encoder"] if column.name in self.data.encoders else ""
            is_category = column.cardinality is not None and not column.counted and not is_binary(column) and encoder not in _ORDERED
            values = column.cardinality if is_category and (column.cardinality or 0) <= self.settings.categories else 0
            input = TreeInput(column.name, values or 0, self.settings.monotone.get(column.name, 0), column.missing)
            inputs += [input] * column_inputs(column, self.settings.terms)
        return tuple(inputs)

    def explain(self, model: nn.Module, rows: Batch) -> Explanation:
        assert isinstance(model, Forest), "the task makes it"
        inputs = model.inputs(rows)
        encoders = self.data.encoders
        # By the columns of the query that a tensor column is encoded from.
        features = [", ".join(encoders[input.column].inputs) if input.column in encoders else input.column for input in self.inputs]
        number = self.target.output_to_explain(model(rows).double()).numpy()
        shares = contributions(model, inputs.numpy())[np.arange(len(inputs)), number]
        return Explanation.sum_by_feature(features, model.importance(len(features)), shares)


def contributions(forest: Forest, inputs: np.ndarray) -> np.ndarray:
    """float64 of shape (rows, outputs, inputs): the output is their sum and the mean over training rows, which has no column.

    `inputs` is float32 of shape (rows, inputs). A node's share of its parent is that of `forest.rows`.
    """
    import lightgbm  # noqa: PLC0415, whoever grew the trees has it

    arrays = {name: values.numpy() for name, values in {**forest.weights(), **forest.facts}.items()}
    columns = range(inputs.shape[1])
    head = [
        "tree", "version=v4", f"num_class={forest.outputs}", f"num_tree_per_iteration={forest.outputs}", "label_index=0",
        f"max_feature_idx={len(columns) - 1}", f"feature_names={_words(f'x{number}' for number in columns)}",
        f"feature_infos={_words('none' for _ in columns)}", "",
    ]  # fmt: skip
    lines = []
    for tree in range(len(arrays["feature"])):
        lines += [f"Tree={tree}", *_tree({name: values[tree] for name, values in arrays.items() if values.ndim > 1}), "", ""]
    booster = lightgbm.Booster(model_str="\n".join([*head, *lines, "end of trees", ""]))
    values = np.asarray(booster.predict(inputs.astype(np.float64), pred_contrib=True, num_threads=1))
    return values.reshape(len(inputs), forest.outputs, -1)[:, :, :-1]


def _tree(nodes: dict[str, np.ndarray]) -> Iterator[str]:
    """The lines of a tree whose nodes these are, the first the root. LightGBM numbers decisions from 0, and leaves from -1 down."""
    children, itself = (nodes["left_child"], nodes["right_child"]), np.arange(len(nodes["left_child"]))
    is_decision = children[0] != itself
    decisions = np.flatnonzero(is_decision)
    leaves = np.setdiff1d(np.concatenate([[0], *(child[decisions] for child in children)]), decisions)  # others are empty room
    place = np.zeros(len(itself), np.int64)
    place[decisions], place[leaves] = np.arange(len(decisions)), ~np.arange(len(leaves))
    yield f"num_leaves={len(leaves)}"
    yield f"leaf_value={_words(map(repr, nodes['value'][leaves].tolist()))}"
    yield f"leaf_count={_words(nodes['rows'][leaves])}"
    if not len(decisions):
        yield "num_cat=0"
        return
    sets = nodes["is_set"][decisions]
    thresholds = np.where(sets, np.cumsum(sets) - 1, nodes["threshold"][decisions].astype(np.float64))
    yield f"num_cat={int(sets.sum())}"
    yield f"split_feature={_words(nodes['feature'][decisions])}"
    yield f"threshold={_words(map(repr, thresholds.tolist()))}"
    yield f"decision_type={_words(np.where(sets, _CATEGORIES, _NAN_LEFT * nodes['missing_left'][decisions]) + _NAN)}"
    yield f"left_child={_words(place[children[0][decisions]])}"
    yield f"right_child={_words(place[children[1][decisions]])}"
    yield f"internal_count={_words(nodes['rows'][decisions])}"
    if sets.any():
        members = nodes["members"][decisions[sets]]  # as bits of whole uint32, the lowest first
        padded = np.pad(members, ((0, 0), (0, -members.shape[1] % 32)))
        bits = np.packbits(padded, axis=1, bitorder="little").view("<u4")
        yield f"cat_boundaries={_words(np.arange(len(bits) + 1) * bits.shape[1])}"
        yield f"cat_threshold={_words(bits.ravel())}"


def _words(values: Iterable[object]) -> str:
    return " ".join(map(str, values))
