"""Reads the trees that LightGBM has grown."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from pipelines.tasks.tables.forest import Tree

Node = Mapping[str, Any]


def read_tree(root: Node, values: int) -> Tree:
    """A tree from LightGBM's description of its root. `values` is the number of categories that decisions may name."""
    nodes, depths = zip(*_walk(root), strict=True)
    place = {id(node): number for number, node in enumerate(nodes)}
    itself = list(range(len(nodes)))
    rows = [_read_node(node, number, place) for number, node in zip(itself, nodes, strict=True)]
    feature, threshold, missing_left, is_set, left_child, right_child, value = map(list, zip(*rows, strict=True))
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
        depth=max(depths),
    )


def _read_node(node: Node, number: int, place: Mapping[int, int]) -> tuple[int, float, bool, bool, int, int, float]:
    """Feature, threshold, whether NaN goes left, whether the decision is on categories, both children, and the value of a leaf."""
    if "split_feature" not in node:
        return 0, 0.0, False, False, number, number, node["leaf_value"]
    children = place[id(node["left_child"])], place[id(node["right_child"])]
    if node["decision_type"] == "==":
        return node["split_feature"], 0.0, False, True, *children, 0.0
    threshold = float(node["threshold"])
    missing_left = node["default_left"] if node["missing_type"] == "NaN" else threshold >= 0
    return node["split_feature"], float(_round_down(threshold)), missing_left, False, *children, 0.0


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
    rounded = np.float32(threshold)
    return np.nextafter(rounded, np.float32(-np.inf)) if float(rounded) > threshold else rounded
