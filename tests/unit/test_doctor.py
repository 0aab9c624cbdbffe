"""`lockstep doctor` says what is right, and what is wrong with its remedy; errors of other commands say the same."""

import json
import os
import socket
import subprocess
import sys
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from config_remedies import VALUES
from disks import write_program
from pyspark.errors import PySparkRuntimeError

from pipelines import api
from pipelines.config import Config
from pipelines.config.load import parse
from pipelines.doctor.examine import Diagnosis
from pipelines.doctor.servers import listener
from pipelines.errors import ConfigError, DatasetError, TrackingError
from pipelines.launch.worker_failures import DeathRecorder
from pipelines.runtime import machine
from pipelines.spark.job_endings import driver_errors
from pipelines.train.checkpoint.run_directory import DEATHS, RunDirectory

ROOT = Path(__file__).parents[2]


def config(**sections: Any) -> Config:
    return parse(deepcopy({**VALUES, **sections}), "x.yaml")


def answer(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "jobs/doctor.py", *arguments]
    variables = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "MLFLOW_TRACKING_URI")} | environment
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120, check=False)


def test_each_line_is_right_or_has_its_remedy_and_the_exit_code_is_that_of_the_first_wrong_one(tmp_path: Path) -> None:
    without_java = answer("--json", PATH=str(tmp_path), LOCKSTEP_HOME=str(tmp_path))
    *lines, result = map(json.loads, without_java.stdout.splitlines())
    assert (without_java.returncode, without_java.stderr) == (DatasetError.exit_code, "")
    names = "python packages tested bytecode java memory home.disk spark.disk ray.disk shm gpus mlflow ui.port"
    assert [line["name"].replace(" ", ".") for line in lines] == names.split()
    assert [line["name"] for line in lines if line["status"] == "wrong"] == ["java"]
    assert "install one, such as openjdk-17" in next(line["detail"] for line in lines if line["name"] == "java")
    assert result["wrong"] == ["java"]
    assert list(tmp_path.iterdir()) == [], "nothing is made"


def test_quiet_prints_what_is_wrong_only(tmp_path: Path) -> None:
    quiet = answer("--quiet", PATH=str(tmp_path), LOCKSTEP_HOME=str(tmp_path))
    assert quiet.stdout == "" and [line.split()[:2] for line in quiet.stderr.splitlines()] == [["java", "wrong"]]


def test_its_help_shows_that_a_config_may_be_left_out() -> None:
    assert "doctor.py [CONF.yaml]" in answer("--help").stdout


def diagnoses(config: Config) -> dict[str, Diagnosis]:
    return {line.name: line for line in api.diagnose(config)}


def test_an_mlflow_that_does_not_answer_a_taken_port_and_a_store_without_a_driver_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        number = silent.getsockname()[1]
        lines = diagnoses(
            config(
                tracking={"uri": f"http://127.0.0.1:{number}"},
                endpoint={"port": number},
                dataset={**VALUES["dataset"], "path": "tape://reel/data"},
            )
        )
    assert {line.exit_code: line.name for line in lines.values() if line.status == "wrong"} == {
        TrackingError.exit_code: "mlflow",
        ConfigError.exit_code: "port",
        DatasetError.exit_code: "store",
    }
    assert "start the server, or set another address" in lines["mlflow"].text
    assert "give a local path or a URI" in lines["store"].text
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "1"


def test_a_port_on_which_our_server_answers_is_right() -> None:
    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Health) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        reading = listener("127.0.0.1", server.server_port, "")
        server.shutdown()
    assert not reading.fault and "answers" in reading.text


@pytest.mark.parametrize(
    ("printed", "is_enough"),
    [('openjdk version "21.0.1"', True), ('java version "17"', True), ('openjdk version "11.0.2"', False), ('java version "1.8.0"', False)],
)
def test_make_and_commands_ask_for_the_same_java(printed: str, is_enough: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    write_program(tmp_path / "bin/java", printed, stream=2)
    script = subprocess.run([ROOT / "cluster/local/java.sh"], capture_output=True, check=False)
    assert (script.returncode == 0, not machine.java().fault) == (is_enough, is_enough)


def test_a_spark_that_does_not_start_says_what_the_doctor_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        with driver_errors():
            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    with pytest.raises(DatasetError, match="for the reason that it printed above; remove it, and run again"):
        start()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(DatasetError) as error:
        start()
    assert machine.java().fault in str(error.value)


def test_a_worker_without_shared_memory_died_of_it(tmp_path: Path) -> None:
    error = RuntimeError("NCCL error\nError while creating shared memory segment /dev/shm/nccl-a3 (size 9637888)")
    DeathRecorder(str(tmp_path)).after_exception(None, {0: error})
    assert machine.SHARED_MEMORY_REMEDY in RunDirectory(str(tmp_path)).get_json(DEATHS)["workers"]["0"]
