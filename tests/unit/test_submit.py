"""What a job for Ray takes along, and what not."""

import os
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from zipfile import ZipFile

import pytest
import ray

ROOT = Path(__file__).parents[2]


def submit_output(arguments: list[str], code: int, **variables: str) -> str:
    environment = {**os.environ, "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:9", **variables}
    process = subprocess.run(
        [sys.executable, "cluster/submit.py", *arguments],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == code, process.stdout
    assert "Traceback" not in process.stdout
    return process.stdout


@pytest.mark.parametrize("arguments", [[], ["--follow", "a", "--", "true"]])
def test_it_wants_a_command_or_a_job(arguments: list[str]) -> None:
    assert "give a command after --, or --follow NAME" in submit_output(arguments, 2)


def test_a_ray_that_is_not_there_is_named() -> None:
    assert "no Ray accepts jobs at http://127.0.0.1:9: " in submit_output(["--", "true"], 1)


def test_a_ray_that_ends_before_it_has_the_job_is_told_in_a_line(tmp_path: Path) -> None:
    class Version(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f'{{"ray_version": "{ray.__version__}"}}'.encode())

    def answer_and_end() -> None:
        for _ in range(2):  # Ray's client asks twice
            server.handle_request()
        server.server_close()

    server = HTTPServer(("127.0.0.1", 0), Version)
    Thread(target=answer_and_end, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    output = submit_output(["--name", "a", "--working-dir", str(tmp_path), "--", "true"], 1, RAY_API_SERVER_ADDRESS=address)
    assert output.startswith("Ray did not accept job a: ") and len(output.splitlines()) == 1


def test_p8_secrets_stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "cluster")
    import submit

    assert submit.is_secret("MLFLOW_TRACKING_PASSWORD") and submit.is_secret("MLFLOW_TRACKING_TOKEN")
    assert not submit.is_secret("MLFLOW_TRACKING_URI") and not submit.is_secret("LOCKSTEP_HOME")
    sent = {}

    class Client:
        def submit_job(self, **job: object) -> None:
            sent.update(job)

    monkeypatch.setenv("RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES", "")  # which `submit` sets
    for name, value in {"MLFLOW_TRACKING_PASSWORD": "hidden", "MLFLOW_TRACKING_USERNAME": "me", "LOCKSTEP_HOME": "/here"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    submit.submit(Client(), "a", ["python", "x y.py"], ".")
    assert sent["runtime_env"]["excludes"] == submit.EXCLUDED
    assert sent["entrypoint"] == "python 'x y.py'" and "hidden" not in str(sent)
    assert sent["runtime_env"]["env_vars"].items() >= {"MLFLOW_TRACKING_USERNAME": "me", "LOCKSTEP_HOME": "/here"}.items()
    for uri in ("http://me:hidden@mlflow:5000", "https://hidden@mlflow"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        with pytest.raises(SystemExit, match=r"^MLFLOW_TRACKING_URI contains a password"):
            submit.submit(Client(), "a", ["true"], ".")


@pytest.mark.parametrize(("home", "folder"), [("a home", "here/a home"), ("", None)])
def test_a_relative_home_is_that_of_the_submitting_folder(
    home: str, folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job runs in another folder."""
    monkeypatch.syspath_prepend(ROOT / "cluster")
    import submit

    sent = {}

    class Client:
        def submit_job(self, **job: object) -> None:
            sent.update(job)

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES", "")  # which `submit` sets
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("LOCKSTEP_HOME", home)
    submit.submit(Client(), "a", ["true"], ".")
    assert sent["runtime_env"]["env_vars"]["LOCKSTEP_HOME"] == (str(tmp_path / folder) if folder else "")


def test_the_commit_of_the_code_goes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "cluster")
    import submit

    assert submit.git_commit(str(tmp_path)) == ""
    git = ["git", "-C", tmp_path, "-c", "user.name=me", "-c", "user.email=me@here"]
    for command in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message=first"]):
        subprocess.run([*git, *command], check=True)
    assert re.fullmatch(r"[0-9a-f]{40}", submit.git_commit(str(tmp_path)))


def test_an_upload_is_code_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private.ray_constants import RAY_RUNTIME_ENV_DEFAULT_EXCLUDES
    from ray._private.runtime_env.packaging import create_package

    monkeypatch.syspath_prepend(ROOT / "cluster")
    import submit

    assert RAY_RUNTIME_ENV_DEFAULT_EXCLUDES.split(",") == submit.EXCLUDED
    create_package(str(ROOT), tmp_path / "upload.zip", include_gitignore=True, excludes=submit.EXCLUDED)
    with ZipFile(tmp_path / "upload.zip") as upload:
        names = upload.namelist()
    assert {name.split("/")[0] for name in names if not name.endswith("/") and "/" in name} == {"pipelines", "jobs", "conf"}
    assert (tmp_path / "upload.zip").stat().st_size < 5_000_000
