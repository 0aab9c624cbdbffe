"""Reads the trees that LightGBM has grown."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from pipelines.tasks.forest import Tree

Node = Mapping[str, Any]


def read_tree(root: Node, values: int) -> Tree:
    """A tree from LightGBM's description of its root. `values` is the number of categories that decisions may name."""
    nodes = list(_walk(root))
    place = {id(node): number for number, node in enumerate(nodes)}
    tree = _empty_tree(len(nodes), values, _depth(root))
    for number, node in enumerate(nodes):
        if "split_feature" not in node:
            tree.value[number] = node["leaf_value"]
            continue
        tree.feature[number] = node["split_feature"]
        tree.left_child[number], tree.right_child[number] = place[id(node["left_child"])], place[id(node["right_child"])]
        if node["decision_type"] == "==":
            tree.is_set[number] = True
            tree.members[number, [int(value) for value in str(node["threshold"]).split("||")]] = True
        else:
            threshold = float(node["threshold"])
            tree.threshold[number] = float(_round_down(threshold))
            tree.missing_left[number] = node["default_left"] if node["missing_type"] == "NaN" else threshold >= 0
    return tree


def no_tree(values: int) -> Tree:
    """A tree that adds nothing."""
    return _empty_tree(1, values, 0)


def _empty_tree(nodes: int, values: int, depth: int) -> Tree:
    itself = torch.arange(nodes)
    flags = (nodes, values)
    return Tree(
        feature=torch.zeros(nodes, dtype=torch.int64),
        threshold=torch.zeros(nodes),
        missing_left=torch.zeros(nodes, dtype=torch.bool),
        members=torch.zeros(flags, dtype=torch.bool),
        is_set=torch.zeros(nodes, dtype=torch.bool),
        left_child=itself.clone(),
        right_child=itself.clone(),
        value=torch.zeros(nodes, dtype=torch.float64),
        depth=depth,
    )


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for side in ("left_child", "right_child"):
        if side in node:
            yield from _walk(node[side])


def _depth(node: Node) -> int:
    return 1 + max(_depth(node[side]) for side in ("left_child", "right_child")) if "split_feature" in node else 0


def _round_down(threshold: float) -> np.float32:
    """The largest float32 up to the threshold: a float32 is at most either of them, or above both."""
    rounded = np.float32(threshold)
    return np.nextafter(rounded, np.float32(-np.inf)) if float(rounded) > threshold else rounded
