"""Names that libraries keep for themselves: only `compat` knows them, and one that is gone raises instead of doing nothing."""

import types
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import grpc
import psutil
import pytest
from mlflow.utils import environment
from ray._common.tls_utils import add_port_to_grpc_server
from ray._private import ray_constants, services
from ray.serve._private import replica
from shape import private_names

from pipelines.errors import MismatchError
from pipelines.runtime.compat import attribute, haproxy, present, replace
from pipelines.runtime.compat import mlflow as mlflow_compat
from pipelines.runtime.compat.ray import loopback_only, set_own_address
from pipelines.runtime.compat.ray_serve import keep_servers_on_loopback

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
