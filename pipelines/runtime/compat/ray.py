"""Private names of Ray."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ray._private import ray_constants, services, state, worker
from ray._private.node import Node
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError
from ray.train.v2._internal.execution import context
from ray.train.v2._internal.execution.scaling_policy import ElasticScalingPolicy, FixedScalingPolicy, ScalingPolicy

from pipelines.runtime.compat import present, replace, replacement

__all__ = [
    "ElasticScalingPolicy", "FixedScalingPolicy", "ScalingPolicy", "WorkerGroupStartupTimeoutError", "draining_nodes", "few_daemons",
    "filtered_output", "loopback_only", "quiet_reports", "set_own_address",
]  # fmt: skip

# Overridden in launch.trainer.
present(TorchTrainer, "_create_default_callbacks", "_initialize_and_run_controller")
present(FixedScalingPolicy, "after_controller_start", "_maybe_send_resource_request")
present(ElasticScalingPolicy, "_count_possible_workers")
present(state.GlobalState, "get_draining_nodes")


def loopback_only() -> AbstractContextManager[None]:
    """Make a Ray that is started in this block listen on loopback only, instead of on the machine's network.

    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 does that when Ray is imported, which it already is. Callers must check where Ray
    listens, since the name may remain and change its meaning.
    """
    return replacement(ray_constants, "ENABLE_RAY_CLUSTER", False)


@contextmanager
def few_daemons() -> Iterator[None]:
    """Make a Ray that is started in this block start two processes fewer.

    One is the dashboard's server, which without a dashboard does nothing but report usage to Ray's authors, and for which `ray.init`
    waits longer than for all others. One requests machines, which a Ray of a single machine never gets.
    """
    with (
        replacement(Node, "start_api_server", lambda node, **settings: None),
        replacement(Node, "start_monitor", lambda node: None),
    ):
        yield


def filtered_output(select_lines: Callable[[Mapping[str, Any]], list[str]]) -> AbstractContextManager[None]:
    """Print what `select_lines` returns of the lines that Ray hands to this process, as Ray would print them.

    Of a Ray that is started or joined in this block, these are the lines of its workers; of any, the reports of raylets.
    """
    before = worker.print_to_stdstream

    def print_selected(data: dict[str, Any], ignore_prefix: bool) -> None:
        if lines := select_lines(data):
            before({**data, "lines": lines}, ignore_prefix)

    return replacement(worker, "print_to_stdstream", print_selected)


def draining_nodes() -> set[str]:
    """Ids of the nodes that Ray is about to lose, or to remove. `ray.nodes` does not tell."""
    return set(state.state.get_draining_nodes())


def set_own_address(address: str) -> None:
    """Make Ray's command line, in this process, use `address` as the machine's own."""

    def answer(_: Any = None) -> str:
        return address

    replace(services, "get_node_ip_address", answer)


def quiet_reports() -> None:
    """Stop a worker of Ray Train from logging a line for every report. The logger is named after the path of its file."""
    present(context, "logger")
    context.logger.setLevel(logging.WARNING)
