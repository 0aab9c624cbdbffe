"""Where a cluster's servers run, and that it is remembered."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import servers
from places import MONITORING_PORTS, PORTS, SERVERS, Places, forget_places, new_places, read_places
from service import Service

TWO = {"address": "10.0.0.7", "interface": "eth0", "enter": ["env", "-i"]}
NOWHERE = {**TWO, "enter": ["nowhere"]}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    if places := read_places(tmp_path):
        places.sockets.rmdir()


def test_without_hosts_all_is_on_loopback(folder: Path) -> None:
    places = new_places(folder)
    assert {places.at(name).rpartition(":")[0] for name in PORTS} == {"127.0.0.1"}
    assert len(set(places.ports.values())) == len({*PORTS, *MONITORING_PORTS})


def test_a_server_is_where_hosts_json_has_it_until_all_have_ended(folder: Path) -> None:
    (folder / "hosts.json").write_text(json.dumps(dict.fromkeys(SERVERS, TWO)))
    places = new_places(folder)
    (folder / "hosts.json").unlink()
    assert read_places(folder) == places
    assert places.at("worker-2") == f"10.0.0.7:{places.ports['worker-2']}"
    assert places.host("spark-worker-2").enter == ("env", "-i")
    places.sockets.rmdir()
    forget_places(places)
    assert read_places(folder) is None


@pytest.mark.parametrize(("home", "folder"), [("a home", "a home"), ("", "")])
def test_jobs_have_an_absolute_home(home: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server runs in the cluster's folder, and a job in a copy of its code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKSTEP_HOME", home)
    ports = {name: number for number, name in enumerate([*PORTS, *MONITORING_PORTS], start=40_000)}
    node = servers._ray("ray-node", "", [], Places(tmp_path / ".cluster", ports, tmp_path / "sockets", {}))
    assert node.variables["LOCKSTEP_HOME"] == str(tmp_path / folder)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\0", b"[" * 100_000, b'{"ports": []}', b"{}"], ids=range(6))
def test_what_keeps_running_servers_is_read_or_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "places.json").write_bytes(content)
    with pytest.raises(SystemExit, match=r"places.json: .*; end the servers, whose process ids are in .*/pids, and remove the file"):
        read_places(tmp_path)
    (tmp_path / "pids").mkdir()
    (tmp_path / "pids/mlflow").write_bytes(content)
    server = Service("mlflow", "127.0.0.1:5000", ["true"], {}, lambda: True, tmp_path)
    with pytest.raises(SystemExit, match=r"pids/mlflow: .*; end mlflow if it runs, and remove the file"):
        server.state()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Invalid JSON"),
        ("[]", "Input should be an object"),
        (json.dumps({"ray-node": {**TWO, "adress": "10.0.0.7"}}), "ray-node.adress: Unexpected keyword argument"),
        (json.dumps({"ray-node": {**TWO, "enter": "env -i"}}), "ray-node.enter: Input should be a valid array"),
        (json.dumps({"ray-node": TWO}), "names ray-node, but must name every server: mlflow, postgres, ray-head, ray-node"),
        (json.dumps(dict.fromkeys(sorted(SERVERS), NOWHERE)), "nowhere is not installed"),
    ],
)
def test_another_hosts_json_is_refused_and_nothing_is_decided(folder: Path, text: str, message: str) -> None:
    (folder / "hosts.json").write_text(text)
    with pytest.raises(SystemExit) as refused:
        new_places(folder)
    assert str(folder / "hosts.json") in str(refused.value) and message in str(refused.value)
    assert read_places(folder) is None
