"""LightGBM's machines: each has some of the rows, and together they find the decisions of every tree.

A worker is one machine. A worker alone is two, since LightGBM counts the rows of a leaf differently where there is no other machine, and
so would grow other trees. LightGBM keeps its connections by thread, so each machine has a thread of its own.

Each machine listens on a port until all are connected. The trees that have grown are read from LightGBM's description of them.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from math import ceil
from typing import Any, TypeVar

import numpy as np
import torch

from pipelines.applications.trees.forest import Tree
from pipelines.applications.trees.settings import TreesSettings
from pipelines.applications.trees.task import TreeInput
from pipelines.errors import ConfigError
from pipelines.runtime.compat.lightgbm import quiet_stdout, silence_thread
from pipelines.train.workers import WorkerContext, all_gather_object, waits_for_workers

Node = Mapping[str, Any]
"""LightGBM's description of a node."""
Result = TypeVar("Result")
LEAST_DRAWN = 4
"""Least number of inputs that are drawn for a tree."""


def find_places(count: int) -> list[str]:
    """Host and port of every machine, by worker. Collective."""
    host = "127.0.0.1"  # or the address of this machine towards that of the first worker
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect((os.environ.get("MASTER_ADDR", host), 9))
        host = str(probe.getsockname()[0])
    listeners = [socket.socket() for _ in range(count)]
    try:
        for listener in listeners:
            listener.bind(("", 0))
        places = [(host, listener.getsockname()[1]) for listener in listeners]
        places_of_all = [place for places_of_worker in all_gather_object(places) for place in places_of_worker]
    finally:  # once all have a port, so that none is given twice
        for listener in listeners:
            listener.close()
    is_local = len({host for host, _ in places_of_all}) == 1
    return [f"{'127.0.0.1' if is_local else host}:{port}" for host, port in places_of_all]


def network_parameters(places: Sequence[str], rank: int, timeout_seconds: float) -> dict[str, Any]:
    """LightGBM's parameters of the machine with this rank, among those at `places`."""
    return {
        "tree_learner": "data",
        "num_machines": len(places),
        "machines": ",".join(places),
        "local_listen_port": int(places[rank].rpartition(":")[2]),
        "pre_partition": True,
        "time_out": ceil(timeout_seconds / 60),
    }


def read_tree(root: Node, values: int) -> Tree:
    """A tree from LightGBM's description of its root. `values` is the number of categories that decisions may name."""
    nodes: list[Node] = []
    depths: list[int] = []
    waiting = [(root, 0)]
    while waiting:  # the root first; a tree may be deeper than Python's stack
        node, depth = waiting.pop()
        nodes.append(node)
        depths.append(depth)
        waiting += [(node[side], depth + 1) for side in ("right_child", "left_child") if side in node]
    place = {id(node): number for number, node in enumerate(nodes)}
    entries = [_read_node(node, number, place) for number, node in enumerate(nodes)]
    feature, threshold, missing_left, is_set, left_child, right_child, value, gain = map(list, zip(*entries, strict=True))
    # LightGBM estimates the rows of a leaf by the sum of its curvature; a decision has those of its children, which come after it.
    rows = [max(int(node.get("leaf_count", 0)), 1) for node in nodes]
    for number in reversed(range(len(nodes))):
        if left_child[number] != number:
            rows[number] = rows[left_child[number]] + rows[right_child[number]]
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
        rows=torch.tensor(rows),
        depth=max(depths),
    )


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
    with np.errstate(over="ignore"):  # of the decision between a number and none
        rounded = np.float32(threshold)
    if float(rounded) > threshold:  # the largest float32 up to it: a float32 is at most either of them, or above both
        rounded = np.nextafter(rounded, np.float32(-np.inf))
    missing_left = node["default_left"] if node["missing_type"] == "NaN" else threshold >= 0
    return node["split_feature"], float(rounded), missing_left, False, *children, 0.0, gain


def check_lightgbm() -> None:
    """Raise ConfigError if it is not installed."""
    if find_spec("lightgbm") is None:
        raise ConfigError(f"task.kind trees needs lightgbm, which is not installed on {socket.gethostname()}; pip install lightgbm")


@dataclass(frozen=True)
class Growth:
    """Settings and facts that decide on trees beside gradients."""

    settings: TreesSettings
    inputs: Sequence[TreeInput]
    outputs: int
    sample: np.ndarray
    """float32 of shape (rows, inputs): rows from which the intervals are made, the same on all workers."""
    threads: int
    timeout_seconds: float

    def dataset_parameters(self) -> dict[str, Any]:
        return {
            "max_bin": self.settings.bins,
            "bin_construct_sample_cnt": len(self.sample),
            "feature_pre_filter": False,  # it would leave out what is rare in the sample
            "verbosity": -1,
            "num_threads": self.threads,
        }

    def parameters(self) -> dict[str, Any]:
        settings = self.settings
        monotone = [input.direction for input in self.inputs]
        draws_several = settings.feature_share * len(self.inputs) >= LEAST_DRAWN  # of fewer, LightGBM hardly ever draws the last
        return {
            **self.dataset_parameters(),
            "objective": "none",
            "num_class": self.outputs,
            "boost_from_average": False,
            "num_leaves": settings.leaves,
            "max_depth": settings.depth or -1,
            "min_data_in_leaf": settings.min_rows,
            "lambda_l2": settings.l2,
            "feature_fraction": settings.feature_share if draws_several else 1.0,
            **({"monotone_constraints": monotone} if any(monotone) else {}),
        }


class Machine:
    """One of LightGBM's machines, with its rows. Every method runs in its own thread, at the same time as those of all others."""

    def __init__(self, lightgbm: Any, growth: Growth, rows: np.ndarray, network: dict[str, Any]) -> None:
        """`rows` are the inputs, float32 of shape (rows, inputs)."""
        silence_thread(lightgbm)
        self._lightgbm, self._outputs, self._parameters = lightgbm, growth.outputs, growth.parameters() | network
        self._values = max((input.values for input in growth.inputs), default=0)
        categories = [number for number, input in enumerate(growth.inputs) if input.values]
        sample = lightgbm.Dataset(growth.sample, categorical_feature=categories, params=growth.dataset_parameters()).construct()
        self._data = lightgbm.Dataset(rows, np.zeros(len(rows)), reference=sample, params=self._parameters).construct()
        self._booster: Any = None
        self._connected: Any = None
        """The first booster, which closes the connections of this thread when it is freed."""

    def begin(self, scores: np.ndarray, seed: int, rounds: int) -> None:
        """Go on from the outputs `scores`, float64 of shape (rows, outputs). The features of trees are drawn from `seed`, as after so many
        rounds."""
        self._data.set_init_score(scores if self._outputs > 1 else scores[:, 0])
        self._booster = self._lightgbm.Booster({**self._parameters, "feature_fraction_seed": seed}, self._data)
        if self._connected is None:
            self._connected = self._booster
            del self._parameters["machines"]
        zeros = np.zeros_like(scores, dtype=np.float32)
        for _ in range(rounds):
            self._boost(zeros, zeros, 1.0)  # which draws, and grows no tree

    def grow(self, gradient: np.ndarray, curvature: np.ndarray, rate: float) -> list[Tree]:
        """Grow a tree for each output; `gradient` and `curvature` are those of this machine's rows."""
        before = self._booster.current_iteration()
        self._boost(gradient, curvature, rate)
        if self._booster.current_iteration() == before:  # no decision improves the loss
            return [read_tree({"leaf_value": 0.0}, self._values)] * self._outputs
        grown = self._booster.dump_model(num_iteration=1, start_iteration=before)["tree_info"]
        return [read_tree(tree["tree_structure"], self._values) for tree in grown]

    def scores(self) -> np.ndarray:
        """The outputs for this machine's rows: float64 of shape (rows, outputs)."""
        outputs: list[np.ndarray] = []

        def collect(scores: np.ndarray, data: Any) -> tuple[str, float, bool]:
            outputs.append(scores.reshape(-1, 1) if scores.ndim == 1 else scores)
            return "scores", 0.0, True

        self._booster.eval_train(collect)
        return outputs[0]

    def leave(self) -> None:
        """Close the connections."""
        if self._connected is not None:
            self._connected.free_network()

    def _boost(self, gradient: np.ndarray, curvature: np.ndarray, rate: float) -> None:
        self._booster.reset_parameter({"learning_rate": rate})  # which draws features, too
        numbers = (gradient, curvature) if self._outputs > 1 else (gradient[:, 0], curvature[:, 0])
        self._booster.update(fobj=lambda scores, data: numbers)


class MachineGroup:
    """The machines of this worker. Every method but `close` is collective."""

    def __init__(self, growth: Growth, rows: np.ndarray, context: WorkerContext) -> None:
        check_lightgbm()
        import lightgbm  # noqa: PLC0415, it takes seconds

        count = 2 if context.world_size == 1 else 1
        places = find_places(count)
        self._threads = [ThreadPoolExecutor(1, "lightgbm") for _ in range(count)]
        self._parts = [slice(len(rows) * number // count, len(rows) * (number + 1) // count) for number in range(count)]
        networks = [network_parameters(places, context.rank * count + number, growth.timeout_seconds) for number in range(count)]
        parts = zip(self._parts, networks, strict=True)
        self._machines = self._all([partial(Machine, lightgbm, growth, rows[part], network) for part, network in parts])

    def begin(self, scores: np.ndarray, seed: int, rounds: int) -> None:
        """Go on from the outputs of this worker's rows. The features of trees are drawn from `seed`, as after so many rounds."""
        parts = zip(self._machines, self._parts, strict=True)
        with quiet_stdout():
            self._all([partial(machine.begin, scores[part], seed, rounds) for machine, part in parts])

    def grow(self, gradient: np.ndarray, curvature: np.ndarray, rate: float) -> list[Tree]:
        """Grow a tree for each output from the gradient and curvature of this worker's rows, of shape (rows, outputs)."""
        parts = zip(self._machines, self._parts, strict=True)
        calls = [partial(machine.grow, gradient[part], curvature[part], rate) for machine, part in parts]
        return self._all(calls)[0]

    def scores(self) -> np.ndarray:
        """The outputs for this worker's rows: float64 of shape (rows, outputs)."""
        outputs = self._all([machine.scores for machine in self._machines])
        return outputs[0] if len(outputs) == 1 else np.concatenate(outputs)

    def close(self) -> None:
        """Close the connections, without waiting for a machine that waits for another one."""
        for thread, machine in zip(self._threads, self._machines, strict=True):
            thread.submit(machine.leave)
            thread.shutdown(wait=False)

    @waits_for_workers
    def _all(self, calls: Sequence[Callable[[], Result]]) -> list[Result]:
        """Make each call in the thread of its machine, at the same time."""
        futures = [thread.submit(call) for thread, call in zip(self._threads, calls, strict=True)]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            if future.done():
                future.result()  # raises, while another machine may wait for the one that failed
        return [future.result() for future in futures]
