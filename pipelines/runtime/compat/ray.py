"""Private names of Ray."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

from ray._private import ray_constants, services, state, utils, worker
from ray._private.node import Node

from pipelines.runtime.compat import is_present, optional_replacement, replace, replacement

_WAITING = "--num_prestart_python_workers="
_SECONDS_BETWEEN_LOOKS = 0.2


def loopback_only() -> AbstractContextManager[None]:
    """Make a Ray that is started in this block listen on loopback only, instead of on the machine's network.

    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 does that when Ray is imported, which it already is. Callers must check where Ray
    listens, since the name may remain and change its meaning.
    """
    return replacement(ray_constants, "ENABLE_RAY_CLUSTER", False)


@contextmanager
def few_daemons() -> Iterator[None]:
    """Make a Ray that is started in this block start two processes fewer, and a smaller third one.

    One is the dashboard's server, which without a dashboard does nothing but report usage to Ray's authors, and for which `ray.init`
    waits longer than for all others. One requests machines, which a Ray of a single machine never gets. The third serves a dashboard
    with what it shows of a machine: it is started as it is where the packages of a dashboard are not installed.
    """
    instead = "Ray starts a process more"
    with (
        optional_replacement(Node, "start_api_server", lambda node, **settings: None, instead),
        optional_replacement(Node, "start_monitor", lambda node: None, instead),
        optional_replacement(utils, "get_dashboard_dependency_error", lambda: ImportError("a dashboard is not wanted"), instead),
    ):
        yield


def waiting_workers(count: int) -> AbstractContextManager[None]:
    """Make a Ray that is started in this block start `count` processes for workers at once, instead of one for each CPU."""
    before = getattr(services, "start_ray_process", None)

    def start_process(command: Sequence[str], *arguments: Any, **settings: Any) -> Any:
        return cast(Any, before)([f"{_WAITING}{count}" if word.startswith(_WAITING) else word for word in command], *arguments, **settings)

    return optional_replacement(services, "start_ray_process", start_process, "Ray starts processes of workers as it will")


def patient_start(kept_waiting: Callable[[], float]) -> AbstractContextManager[None]:
    """Make `ray.init` wait for its node for at least as long as `kept_waiting` says, in seconds: by itself it waits for 30 s."""
    before = getattr(services, "get_node", None)

    def get_node(*arguments: Any) -> Any:
        began = time.monotonic()
        while True:
            try:
                return cast(Any, before)(*arguments)
            except RuntimeError:  # the node is not there yet
                if time.monotonic() - began >= kept_waiting():
                    raise
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    return optional_replacement(services, "get_node", get_node, "Ray waits for its node for 30 s")


def shutdown_by(end_processes: Callable[[], None]) -> AbstractContextManager[None]:
    """Make `ray.shutdown` call `end_processes`, once it has disconnected this process, before it ends the daemons that still live."""
    before = getattr(Node, "kill_all_processes", None)

    def end(node: Any, **_: Any) -> None:
        end_processes()
        cast(Any, before)(node, check_alive=False, allow_graceful=False)

    return optional_replacement(Node, "kill_all_processes", end, "Ray asks its processes to end, one after another")


def filtered_output(select_lines: Callable[[Mapping[str, Any]], list[str]]) -> AbstractContextManager[None]:
    """Print what `select_lines` returns of the lines that Ray hands to this process, as Ray would print them.

    Of a Ray that is started or joined in this block, these are the lines of its workers; of any, the reports of raylets.
    """
    before = getattr(worker, "print_to_stdstream", None)

    def print_selected(data: dict[str, Any], ignore_prefix: bool) -> None:
        if lines := select_lines(data):
            cast(Any, before)({**data, "lines": lines}, ignore_prefix)

    return optional_replacement(worker, "print_to_stdstream", print_selected, "Ray prints all lines of its processes")


def draining_nodes() -> set[str]:
    """Ids of the nodes that Ray is about to lose, or to remove. `ray.nodes` does not tell."""
    if not is_present(state.GlobalState, "get_draining_nodes", instead="workers are not saved before Ray removes their machine"):
        return set()
    return set(state.state.get_draining_nodes())


def set_own_address(address: str) -> None:
    """Make Ray's command line, in this process, use `address` as the machine's own."""

    def answer(_: Any = None) -> str:
        return address

    replace(services, "get_node_ip_address", answer)
