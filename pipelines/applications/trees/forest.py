"""An ensemble of decision trees as a torch module: a row's output is the sum of a leaf of each tree.

All trees have room for the same number of nodes. A node is a decision or a leaf; a leaf leads to itself. As torch exports the module, every
row takes as many steps as the deepest tree has decisions, each of a few gathers; otherwise, rows stop at their leaves.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.data import Batch
from pipelines.tasks.text import frequent_counts

PAIRS_AT_ONCE = 2**16
"""Pairs that walk together, so that their numbers stay in a processor's cache."""
_LEVELS_AT_ONCE = 3
"""Decisions between two looks at which pairs have arrived."""
TREES_AT_ONCE = 64
"""Trees of each output whose values are summed before they are added to the others."""
_WEIGHTS = ("feature", "threshold", "missing_left", "is_set", "members", "left_child", "right_child", "value")
_FACTS = ("gain", "rows")
"""Of each node: what predictions need, and what the forest learned from."""


class Nodes(NamedTuple):
    """The nodes of trees, side by side: each entry of shape (trees · nodes,)."""

    feature: Tensor
    threshold: Tensor
    missing_left: Tensor
    children: Tensor
    """int64 of twice the length: of each node the left and the right child, which are the node itself for a leaf."""
    is_set: Tensor
    members: Tensor
    """bool of shape (trees · nodes, values)."""
    value: Tensor
    roots: Tensor
    """int64 of shape (trees,)."""


def _find_leaves(nodes: Nodes, inputs: Tensor) -> Tensor:
    """The node of each row's leaf in each tree: int64 of shape (rows, trees)."""
    rows, columns = inputs.shape
    leaves = nodes.roots.repeat(rows)
    values, may_be_missing, has_sets = inputs.flatten(), bool(inputs.isnan().any()), bool(nodes.is_set.any())
    pairs = torch.arange(len(leaves), device=inputs.device)
    row_starts = pairs.div(len(nodes.roots), rounding_mode="floor") * columns
    at = leaves
    while len(at):
        for _ in range(_LEVELS_AT_ONCE):
            compared = values.take(row_starts + nodes.feature.take(at))
            goes_right = compared > nodes.threshold.take(at)
            if may_be_missing:
                goes_right |= compared.isnan() & ~nodes.missing_left.take(at)
            if has_sets:  # a value goes left if it is a member of the set
                of_sets = nodes.is_set.take(at).nonzero().squeeze(1)
                value, count = compared[of_sets], nodes.members.shape[1]
                member = at[of_sets] * count + value.nan_to_num(0.0).clamp(0, count - 1).long()
                goes_right[of_sets] = ~(nodes.members.take(member) & (value < count))
            at = nodes.children.take(2 * at + goes_right)
        leaves[pairs] = at
        walks_on = (nodes.children.take(2 * at) != at).nonzero().squeeze(1)
        pairs, row_starts, at = pairs[walks_on], row_starts[walks_on], at[walks_on]
    return leaves.view(rows, -1)


@dataclass(frozen=True)
class Tree:
    """The nodes of a tree, each entry of shape (nodes,); the first is the root. The children of a leaf are the leaf itself."""

    feature: Tensor
    """int64: the number of the input that is compared."""
    threshold: Tensor
    """float32: an input up to it goes left."""
    missing_left: Tensor
    """bool: whether NaN goes left."""
    members: Tensor
    """bool of shape (nodes, values): of a decision on categories, the values that go left; none for other nodes."""
    is_set: Tensor
    """bool: whether the decision is on categories."""
    left_child: Tensor
    right_child: Tensor
    value: Tensor
    """float64: what a leaf adds to its output; 0 for decisions."""
    gain: Tensor
    """float64: by how much a decision lowered the loss; 0 for leaves."""
    rows: Tensor
    """int64: training rows that reached the node."""
    depth: int
    """Number of decisions above the deepest leaf."""


def column_inputs(column: TensorColumn, terms: int) -> int:
    """Number of inputs that a column becomes: of a text, one for each of its most frequent `terms`."""
    return min(terms, (column.cardinality or 1) - 1) if column.counted else prod(column.shape)


class Forest(nn.Module):
    """Trees over the columns of a batch. Tree t adds to output t % outputs; `bias` is the output without trees.

    `gain` and `rows` of the nodes are no weights: only where trees grew, they say what the forest learned from.
    """

    bias: Tensor
    trees: Tensor
    depth: Tensor
    feature: Tensor
    threshold: Tensor
    missing_left: Tensor
    is_set: Tensor
    members: Tensor
    left_child: Tensor
    right_child: Tensor
    value: Tensor
    gain: Tensor
    rows: Tensor

    def __init__(self, features: Sequence[TensorColumn], outputs: int, nodes: int, values: int, terms: int = 0) -> None:
        """A tree has at most `nodes`, and decisions on categories are of fewer than `values` values. Of a text, there are decisions on the
        counts of its most frequent `terms`."""
        super().__init__()
        self._terms = {column.name: column_inputs(column, terms) if column.counted else 0 for column in features}
        self.outputs, self._nodes, self._values = outputs, nodes, values
        self.register_buffer("bias", torch.zeros(outputs, dtype=torch.float64))
        self.register_buffer("trees", torch.zeros((), dtype=torch.int64))
        self.register_buffer("depth", torch.zeros((), dtype=torch.int64))
        self.reserve(0)

    def reserve(self, trees: int) -> None:
        """Make room for so many trees, and remove all that there are."""
        shape = (trees, self._nodes)
        self.register_buffer("feature", torch.zeros(shape, dtype=torch.int64))
        self.register_buffer("threshold", torch.zeros(shape, dtype=torch.float32))
        self.register_buffer("missing_left", torch.zeros(shape, dtype=torch.bool))
        self.register_buffer("is_set", torch.zeros(shape, dtype=torch.bool))
        self.register_buffer("members", torch.zeros((*shape, self._values), dtype=torch.bool))
        itself = torch.arange(self._nodes).expand(shape)
        self.register_buffer("left_child", itself.clone())
        self.register_buffer("right_child", itself.clone())
        self.register_buffer("value", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("gain", torch.zeros(shape, dtype=torch.float64), persistent=False)
        self.register_buffer("rows", torch.zeros(shape, dtype=torch.int64), persistent=False)
        self.count, self._levels = 0, 0

    def add(self, trees: Sequence[Tree]) -> None:
        """Add a tree for each output, where there is room for them."""
        for tree in trees:
            nodes = len(tree.feature)
            for name in (*_WEIGHTS, *_FACTS):
                getattr(self, name)[self.count, :nodes] = getattr(tree, name)
            self.count, self._levels = self.count + 1, max(self._levels, tree.depth)
        self.trees.fill_(self.count)
        self.depth.fill_(self._levels)

    def inputs(self, batch: Batch) -> Tensor:
        """The columns side by side as float32, shape (rows, inputs)."""
        columns = (frequent_counts(batch[name], terms) if terms else batch[name].float() for name, terms in self._terms.items())
        return torch.cat([column.unsqueeze(-1).flatten(1) for column in columns], dim=1)

    def forward(self, batch: Batch) -> Tensor:
        """float32 of shape (rows, outputs)."""
        inputs = self.inputs(batch)
        return self.add_trees(self.bias.expand(inputs.shape[0], self.outputs), inputs, range(self.count)).float()

    def add_trees(self, total: Tensor, inputs: Tensor, trees: range) -> Tensor:
        """`total`, float64 of shape (rows, outputs), plus the outputs of `trees`.

        Calls for consecutive `trees` give the same bits as one call, if all but the last end at a multiple of TREES_AT_ONCE · outputs.
        """
        if torch.compiler.is_exporting() and trees:
            return total + self._leaf_values_of_graph(inputs, trees).unflatten(1, (-1, self.outputs)).sum(1)
        for values in self._leaf_values(inputs, trees):
            total = total + values.unflatten(1, (-1, self.outputs)).sum(1)
        return total

    def scores(self, inputs: Tensor) -> Tensor:
        """The outputs as float64, shape (rows, outputs), added tree by tree: the same bits as while the trees grew."""
        total = self.bias.repeat(inputs.shape[0], 1)
        for values in self._leaf_values(inputs, range(self.count)):
            for round_values in values.split(self.outputs, dim=1):
                total += round_values
        return total

    def weights(self) -> dict[str, Tensor]:
        """Weights by name, without the room that no tree fills."""
        scalars = ("bias", "trees", "depth")
        return {name: values.clone() if name in scalars else values[: self.count].clone() for name, values in self.state_dict().items()}

    @property
    def facts(self) -> dict[str, Tensor]:
        """Gain and rows of every node by name, without a copy."""
        return {name: getattr(self, name) for name in _FACTS}

    def importance(self, inputs: int) -> dict[str, Tensor]:
        """`gain`, the sum over the decisions on each input, and `splits`, how many there are: float64 of shape (inputs,)."""
        is_decision = self.left_child[: self.count] != self.right_child[: self.count]
        feature, gain = self.feature[: self.count][is_decision], self.gain[: self.count][is_decision]
        zeros = torch.zeros(inputs, dtype=torch.float64)
        return {"gain": zeros.index_add(0, feature, gain), "splits": zeros.index_add(0, feature, torch.ones_like(gain))}

    def _leaf_values(self, inputs: Tensor, trees: range) -> Iterator[Tensor]:
        """The value of each row's leaf in each tree, TREES_AT_ONCE for each output at a time: float64 of shape (rows, trees)."""
        at_once = TREES_AT_ONCE * self.outputs
        for first in range(trees.start, trees.stop, at_once):
            place = slice(first, min(first + at_once, trees.stop))
            roots = torch.arange(place.stop - first, device=self.feature.device) * self._nodes
            children = torch.stack([self.left_child[place], self.right_child[place]], 2) + roots[:, None, None]
            names = ("feature", "threshold", "missing_left", "is_set", "members", "value")
            flat = {name: getattr(self, name)[place].flatten(0, 1) for name in names}
            nodes = Nodes(children=children.flatten(), roots=roots, **flat)
            parts = inputs.split(max(1, PAIRS_AT_ONCE // len(roots))) if len(inputs) else ()
            values = [nodes.value.take(_find_leaves(nodes, rows)) for rows in parts]
            yield torch.cat(values) if values else nodes.value.new_empty(0, len(roots))

    def _leaf_values_of_graph(self, inputs: Tensor, trees: range) -> Tensor:
        """Leaf values of all trees at once: float64 of shape (rows, trees). Each row takes as many steps as the deepest tree has decisions:
        a graph has no loop that ends when the rows arrive."""
        roots = torch.arange(trees.start, trees.stop, device=inputs.device) * self._nodes
        feature, threshold, missing_left = self.feature.flatten(), self.threshold.flatten(), self.missing_left.flatten()
        left_child, right_child = self.left_child.flatten(), self.right_child.flatten()
        at = roots.expand(inputs.shape[0], -1)
        for _ in range(self._levels):
            compared = inputs.gather(1, feature[at])
            goes_left = (compared <= threshold[at]) | (compared.isnan() & missing_left[at])
            if self._values:
                value = compared.nan_to_num(0.0).clamp(0, self._values - 1).long()
                is_member = self.members.flatten()[at * self._values + value] & (compared < self._values)
                is_set = self.is_set.flatten()[at]  # ONNX runtimes choose between no booleans
                goes_left = (is_set & is_member) | (~is_set & goes_left)
            at = roots + torch.where(goes_left, left_child[at], right_child[at])
        return self.value.flatten()[at]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any) -> None:
        """Makes room for the trees of the weights that are loaded."""
        if (saved := state_dict.get(f"{prefix}feature")) is not None and len(saved) != len(self.feature):
            self.reserve(len(saved))
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        self.count, self._levels = int(self.trees), int(self.depth)
