"""Reads the trees that LightGBM has grown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pipelines.applications.trees.forest import Tree

Node = Mapping[str, Any]


def read_tree(root: Node, values: int) -> Tree:
    """A tree from LightGBM's description of its root. `values` is the number of categories that decisions may name."""
    nodes, depths = zip(*_walk(root), strict=True)
    place = {id(node): number for number, node in enumerate(nodes)}
    itself = list(range(len(nodes)))
    rows = [_read_node(node, number, place) for number, node in zip(itself, nodes, strict=True)]
    feature, threshold, missing_left, is_set, left_child, right_child, value, gain = map(list, zip(*rows, strict=True))
    members = torch.zeros(len(nodes), values, dtype=torch.bool)
    for number, node in enumerate(nodes):
        if is_set[number]:
            members[number, [int(category) for category in str(node["threshold"]).split("||")]] = True
    return Tree(
        feature=torch.tensor(feature),
        threshold=torch.tensor(threshold),
        missing_left=torch.tensor(missing_left),
        members=members,
        is_set=torch.tensor(is_set),
        left_child=torch.tensor(left_child),
        right_child=torch.tensor(right_child),
        value=torch.tensor(value, dtype=torch.float64),
        gain=torch.tensor(gain, dtype=torch.float64),
        rows=torch.tensor(_rows(nodes, left_child, right_child)),
        depth=max(depths),
    )


def _rows(nodes: Sequence[Node], left_child: Sequence[int], right_child: Sequence[int]) -> list[int]:
    """Rows of each node, int64: those of its leaves, of which LightGBM estimates each by the sum of its curvature; at least one."""
    rows = [max(int(node.get("leaf_count", 0)), 1) for node in nodes]
    for number in reversed(range(len(nodes))):  # children come after their parent
        if left_child[number] != number:
            rows[number] = rows[left_child[number]] + rows[right_child[number]]
    return rows


def _read_node(node: Node, number: int, place: Mapping[int, int]) -> tuple[int, float, bool, bool, int, int, float, float]:
    """Feature, threshold, whether NaN goes left, whether the decision is on categories, both children, the value of a leaf, and the gain of
    a decision."""
    if "split_feature" not in node:
        return 0, 0.0, False, False, number, number, node["leaf_value"], 0.0
    gain = float(node["split_gain"])
    children = place[id(node["left_child"])], place[id(node["right_child"])]
    if node["decision_type"] == "==":
        return node["split_feature"], 0.0, False, True, *children, 0.0, gain
    threshold = float(node["threshold"])
    missing_left = node["default_left"] if node["missing_type"] == "NaN" else threshold >= 0
    return node["split_feature"], float(_round_down(threshold)), missing_left, False, *children, 0.0, gain


def no_tree(values: int) -> Tree:
    """A tree that adds nothing."""
    return read_tree({"leaf_value": 0.0}, values)


def _walk(root: Node) -> Iterator[tuple[Node, int]]:
    """Each node with the number of decisions above it, the root first. A tree may be deeper than Python's stack."""
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting += [(node[side], depth + 1) for side in ("right_child", "left_child") if side in node]


def _round_down(threshold: float) -> np.float32:
    """The largest float32 up to the threshold: a float32 is at most either of them, or above both."""
    with np.errstate(over="ignore"):  # of the decision between a number and none
        rounded = np.float32(threshold)
    return np.nextafter(rounded, np.float32(-np.inf)) if float(rounded) > threshold else rounded
