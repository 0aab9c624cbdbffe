"""`lockstep demo`, for whoever has installed the package and no checkout."""

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import mlflow
import pytest

from pipelines.demo import two_commands
from pipelines.demo.two_commands import run_demo
from pipelines.errors import ConfigError

ROOT = Path(__file__).parents[2]


def test_it_is_the_checkout_s_first_pipeline() -> None:
    assert (ROOT / "pipelines/demo/digits.yaml").read_bytes() == (ROOT / "conf/digits.yaml").read_bytes(), "copy conf/digits.yaml there"


def test_both_commands_get_its_settings_and_the_first_failure_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import sys; print(sys.argv[1:]); sys.exit(sys.argv[1] == 'train' and 7)"
    with mock.patch.object(two_commands, "_LOCKSTEP", code), pytest.raises(SystemExit) as exit_info:
        run_demo(["--train.epochs", "1"])
    assert exit_info.value.code == 7
    assert capfd.readouterr().out.splitlines() == [
        "$ lockstep etl digits.yaml --train.epochs 1",
        "['etl', 'digits.yaml', '--train.epochs', '1']",
        "$ lockstep train digits.yaml --train.epochs 1",
        "['train', 'digits.yaml', '--train.epochs', '1']",
    ]


def test_a_signal_reaches_the_command_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import os, signal; os.kill(os.getppid(), signal.SIGTERM); signal.pause()"
    with mock.patch.object(two_commands, "_LOCKSTEP", code), pytest.raises(SystemExit) as exit_info:
        run_demo([])
    assert exit_info.value.code == 143


def test_another_file_of_that_name_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("digits.yaml").write_text("name: mine\n")
    with pytest.raises(ConfigError, match=r"digits.yaml is another file than the demo's; move it, or run the demo in an empty folder"):
        run_demo([])
    assert Path("digits.yaml").read_text() == "name: mine\n"


@pytest.mark.full
@pytest.mark.slow
def test_p1_an_empty_folder_gets_a_tracked_model(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("LOCKSTEP_HOME", "MLFLOW_TRACKING_URI")}
    command = [sys.executable, "-c", two_commands._LOCKSTEP, "demo", "--train.epochs", "3"]
    answer = subprocess.run(
        command, cwd=tmp_path, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    (run_id,) = re.findall(r"^run (\w+) of experiment digits", answer.stdout, re.MULTILINE)
    run = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_run(run_id)
    assert run.info.status == "FINISHED" and run.data.metrics["test/accuracy"] > 0.5
