"""Proves that a change of the code changed no number: run it before with a folder of its own, and after with the same one.

    python -m benchmarks.conf.digests HOME [--code CHECKOUT]

Through the same commands as a user's, on conf/digits.yaml: the dataset's digest, and the digests of models of strategy
`exact` on 1, 2 and 3 workers and of `ddp` on 2. It also leaves a run that was cut off half-way, which the next call goes
on with: a checkpoint of the code before, finished by the code after, must give the digest of a run that was never cut
off. Exit code 1 if a digest is another than before. `--code` is a checkout to run instead of this one.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from mlflow import MlflowClient

ROOT = Path(__file__).parents[2]
SETTINGS = {"epochs": "1000", "max_steps": "400", "checkpoint.every_steps": "20"}
CUT = {"strategy": "exact", "workers": "2", "storage": "cut"}
"""The run that is cut off; its checkpoints lie apart from those of the other runs."""


def command(code: Path, home: Path, job: str, *settings: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "LOCKSTEP_HOME": str(home), "PYTHONPATH": str(code)}
    words = [sys.executable, str(code / f"jobs/{job}.py"), str(code / "conf/digits.yaml"), *settings]
    # Ray's workers import from the folder that the driver was started in.
    return subprocess.Popen(words, cwd=code, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def output_of(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate()
    if process.returncode:
        sys.exit(f"{' '.join(map(str, process.args))}: exit code {process.returncode}\n{output}")  # type: ignore[arg-type]
    return output


def train(code: Path, home: Path, database: str, **train: str) -> subprocess.Popen[str]:
    settings = [word for name, value in {**SETTINGS, **train}.items() for word in (f"--train.{name}", value)]
    return command(code, home, "train", *settings, "--tracking.uri", f"sqlite:///{home}/{database}.db")


def trained(home: Path, database: str, output: str) -> str:
    """The digest that MLflow has of the run that `output` is about."""
    found = re.search(r"^run (\w+) of experiment", output, re.MULTILINE)
    assert found, output
    return str(MlflowClient(f"sqlite:///{home}/{database}.db").get_run(found[1]).data.tags["model.digest"])


def cut_off(code: Path, home: Path) -> None:
    """Begin a run, and interrupt it once it has a checkpoint."""
    process = train(code, home, "cut", **CUT)
    while process.poll() is None and not list(home.glob("cut/*/checkpoints/*/record.json")):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, output


def digests(code: Path, home: Path) -> dict[str, str]:
    """By name, each printed when it is there."""
    found: dict[str, str] = {}

    def add(name: str, digest: str) -> None:
        found[name] = digest
        print(f"{name:32} {digest}", flush=True)

    if not (home / "data/digits").exists():
        output_of(command(code, home, "etl"))
    add("dataset", json.loads(max((home / "data/digits").glob("*/manifest.json")).read_text())["digest"])
    if (home / "cut").exists():
        resumed = output_of(train(code, home, "cut", **CUT))
        assert " goes on: " in resumed, resumed
        add("exact, resumed", trained(home, "cut", resumed))
        (home / "cut.db").unlink()
        (home / "cut").rename(home / f"finished-{time.time_ns()}")
    for name, settings in {
        "exact, 1 worker": {"strategy": "exact", "workers": "1"},
        "exact, 2 workers": {"strategy": "exact", "workers": "2"},
        "exact, 3 workers": {"strategy": "exact", "workers": "3"},
        "ddp, 2 workers": {"strategy": "ddp", "workers": "2"},
    }.items():
        add(name, trained(home, "mlflow", output_of(train(code, home, "mlflow", **settings))))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path, help="folder of datasets, runs, and the digests of the call before")
    parser.add_argument("--code", type=Path, default=ROOT)
    arguments = parser.parse_args()
    home = arguments.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    kept = home / "digests.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    found = digests(arguments.code.absolute(), home)
    cut_off(arguments.code.absolute(), home)
    kept.write_text(json.dumps(found, indent=1) + "\n")
    exact = {digest for name, digest in found.items() if name.startswith("exact")}
    changed = [name for name, digest in found.items() if before.get(name, digest) != digest]
    if len(exact) > 1:
        changed.append("exact, by workers")
    print(f"changed: {', '.join(changed)}" if changed else f"the same as before: {', '.join(before) or 'nothing to compare with yet'}")
    sys.exit(bool(changed))


if __name__ == "__main__":
    main()
