"""Names that libraries keep for themselves: only `compat` knows them, and one that is gone raises instead of doing nothing."""

import atexit
import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import lightgbm
import psutil
import pytest
import torch
from lightning_utilities.core.imports import RequirementCache
from mlflow.store.model_registry import sqlalchemy_store
from mlflow.utils import environment
from pyspark import SparkContext
from ray._common.tls_utils import add_port_to_grpc_server
from ray._private import ray_constants, services, state, worker
from ray._private.node import Node
from ray.serve._private import replica
from ray.train.v2._internal.execution import context
from ray.train.v2._internal.execution.controller.controller import TrainController
from shape import private_names

from pipelines.errors import MismatchError
from pipelines.runtime.compat import attribute, haproxy, present, python, ray_train, replace, torchmetrics, warn_once
from pipelines.runtime.compat import mlflow as mlflow_compat
from pipelines.runtime.compat import ray as ray_compat
from pipelines.runtime.compat import torch as torch_compat
from pipelines.runtime.compat.lightgbm import silence_thread
from pipelines.runtime.compat.ray import loopback_only, set_own_address
from pipelines.runtime.compat.ray_serve import keep_servers_on_loopback
from pipelines.runtime.compat.spark import context_is_stopped

ROOT = Path(__file__).parents[2]
FILES = sorted(file for folder in ("pipelines", "jobs", "cluster") for file in (ROOT / folder).rglob("*.py"))


def test_only_compat_knows_libraries_own_names() -> None:
    assert [name for file in FILES if file.parent.name != "compat" for name in private_names(file)] == []


def test_an_attribute_that_is_gone_is_not_read() -> None:
    library = type("Base", (), {"__module__": "library.base"})
    with pytest.raises(MismatchError, match=r"^Base._inner is gone from this version of library"):
        attribute(library(), "_inner")


def test_a_name_that_is_gone_is_not_set() -> None:
    library = types.ModuleType("library.constants")
    with pytest.raises(MismatchError, match=r"^library.constants.LISTEN is gone from this version of library; install"):
        replace(library, "LISTEN", False)
    assert not hasattr(library, "LISTEN")
    with pytest.raises(MismatchError, match="gone"):
        present(type("Base", (), {"__module__": "library.base"}), "__init__", "_overridden")


def test_ray_without_its_switch_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ray_constants, "ENABLE_RAY_CLUSTER")
    with pytest.raises(MismatchError, match="ENABLE_RAY_CLUSTER is gone from this version of ray"), loopback_only():
        pass


def scale_one_by_one() -> bool:
    tensor = torch.tensor([1.5, -2.0])
    torch_compat.scale_tensors([tensor], torch.tensor(0.1))
    return torch.equal(tensor, torch.tensor([1.5, -2.0]) * torch.tensor(0.1))


def enters(block: Callable[[], AbstractContextManager[None]]) -> Callable[[], bool]:
    """Whether a block can be entered and left."""

    def enter() -> bool:
        with block():
            return True

    return enter


def ends(call: Callable[[], None]) -> Callable[[], bool]:
    """Whether a call ends without an error."""

    def run() -> bool:
        call()
        return True

    return run


ORDINARY_WAYS: dict[str, tuple[Any, str, Callable[[], object]]] = {
    "a process more": (Node, "start_api_server", enters(ray_compat.few_daemons)),
    "as it will": (services, "start_ray_process", enters(lambda: ray_compat.waiting_workers(2))),
    "for 30 s": (services, "get_node", enters(lambda: ray_compat.patient_start(lambda: 1.0))),
    "one after another": (Node, "kill_all_processes", enters(lambda: ray_compat.shutdown_by(lambda: None))),
    "prints all lines": (worker, "print_to_stdstream", enters(lambda: ray_compat.filtered_output(lambda data: []))),
    "before Ray removes": (state.GlobalState, "get_draining_nodes", lambda: ray_compat.draining_nodes() == set()),
    "a line for every report": (context, "logger", ends(ray_train.quiet_reports)),
    "one by one": (torch, "_foreach_mul_", scale_one_by_one),
    "in every process": (torch._compile, "_disable_dynamo", lambda: torch_compat.outside_of_graphs(len)([1, 2]) == 2),
    "are not known": (torch._C._distributed_c10d, "_dump_fr_trace_json", lambda: torch_compat.last_collectives(3) == []),
    "no snapshot": (torch.cuda.memory, "_dump_snapshot", ends(lambda: torch_compat.write_memory_snapshot("nowhere"))),
    "imports matplotlib": (RequirementCache, "_check_available", enters(torchmetrics.without_optional_packages)),
    "compares the requirements": (
        *(environment, "warn_dependency_requirement_mismatches"),
        enters(mlflow_compat.trusted_requirements),
    ),
    "prints its warnings": (lightgbm.basic, "_LIB", ends(lambda: silence_thread(lightgbm))),
    "frees all": (atexit, "_run_exitfuncs", lambda: not python.finish_threads_and_exit_functions()),
    "delays the next one": (
        sqlalchemy_store,
        "_get_managed_session_maker",
        ends(mlflow_compat.defer_signals_in_sessions.__wrapped__),
    ),
}
"""By the words of the log's line: a name that only saves time, and what leans on it."""


@pytest.mark.parametrize("words", ORDINARY_WAYS)
def test_without_a_name_that_saves_time_the_ordinary_way_is_taken_and_said_once(
    words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner, name, call = ORDINARY_WAYS[words]
    monkeypatch.delattr(owner, name)
    warn_once.cache_clear()
    assert call()
    assert call()
    (message,) = caplog.messages
    assert f"{name} is gone from this version of" in message and words in message


def test_a_function_that_is_constant_in_graphs_has_torchs_own_mark() -> None:
    marks = [vars(mark(lambda: True)) for mark in (torch.compiler.assume_constant_result, torch_compat.constant_in_graphs)]
    assert marks[0] == marks[1] != {}


def test_a_controller_that_cannot_run_here_runs_in_an_actor(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert ray_train.local_controller() is not None
    monkeypatch.delitem(sys.modules, "pipelines.runtime.compat.ray_controller")
    monkeypatch.delattr(TrainController, "_step")
    warn_once.cache_clear()
    assert ray_train.local_controller() is None
    assert "controller runs in an actor" in caplog.text


def test_a_template_that_has_changed_is_not_given_an_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert haproxy.append_default_option(haproxy.RETRY_ON, "conn-failure", "option x") == "conn-failure\n    option x"
    private = tmp_path / "serve/_private"
    private.mkdir(parents=True)
    (private / "haproxy_templates.py").write_text("\n    retry-on {{ config.retry_on | trim }}\n")
    monkeypatch.setattr(haproxy, "find_spec", lambda name: types.SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    with pytest.raises(MismatchError, match=r"ray\.serve has another haproxy_templates\.py than .* was written for; install ray"):
        haproxy.append_default_option(haproxy.RETRY_ON, "conn-failure", "option x")


def test_ray_on_loopback_knows_no_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(services, "get_node_ip_address")
    with pytest.raises(MismatchError, match="get_node_ip_address is gone from this version of ray"):
        set_own_address("127.0.0.1")


def test_a_replica_of_ray_serve_listens_for_others_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "add_port_to_grpc_server", add_port_to_grpc_server)  # so that it is restored
    keep_servers_on_loopback()
    server = grpc.server(ThreadPoolExecutor(1))
    port = replica.add_port_to_grpc_server(server, "[::]:0")
    server.start()
    listening = [
        connection.laddr.ip for connection in psutil.Process().net_connections("inet") if connection.laddr and connection.laddr.port == port
    ]
    server.stop(None)
    assert listening == ["::ffff:127.0.0.1"]
    monkeypatch.delattr(replica, "add_port_to_grpc_server")
    with pytest.raises(MismatchError, match="add_port_to_grpc_server is gone from this version of ray"):
        keep_servers_on_loopback()


def test_mlflow_does_not_list_the_files_of_all_packages_to_check_requirements_that_are_installed() -> None:
    with (
        mock.patch("mlflow.utils.requirements_utils._check_requirement_satisfied", side_effect=AssertionError("it checks")),
        mlflow_compat.trusted_requirements(),
    ):
        assert environment._process_pip_requirements([], ["numpy==2"])[1] == ["mlflow==" + version("mlflow"), "numpy==2"]
    with mock.patch("mlflow.utils.requirements_utils._check_requirement_satisfied", return_value=None) as check:
        environment._process_pip_requirements([], ["numpy==2"])
    assert check.called


def test_a_context_that_another_thread_is_starting_has_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known before it has its Java."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", object.__new__(SparkContext))
    assert not context_is_stopped()
