"""Proves that a change of the code has changed no numbers. Run it before and after the change, with the same folder.

    python -m benchmarks.conf.digests HOME [--only digits trec] [--code CHECKOUT]

It runs the commands that a user runs, and prints the digest of the dataset that each conf/*.yaml makes from its raw data, made
anew each time; then, for conf/digits.yaml, the digests of models of strategy `exact` on 1, 2 and 3 workers and of `ddp` on 2.
It also leaves a run that was interrupted half-way, which the next call resumes: a run that the old code began and the new
code finishes must have the digest of an uninterrupted run. Exits with 1 if a digest has changed. The name of a version may
change, since it depends on the settings and not on the rows alone.

Raw data are read from LOCKSTEP_RAW, by default ../shared/data beside this repository. A pipeline whose data are not there is
skipped with a message. `--code` names a checkout to run instead of this one.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from mlflow import MlflowClient

from benchmarks.conf.figures import raw_paths

ROOT = Path(__file__).parents[2]
SETTINGS = {"epochs": "1000", "max_steps": "400", "checkpoint.every_steps": "20"}
MODELS = {
    "exact, 1 worker": {"strategy": "exact", "workers": "1"},
    "exact, 2 workers": {"strategy": "exact", "workers": "2"},
    "exact, 3 workers": {"strategy": "exact", "workers": "3"},
    "ddp, 2 workers": {"strategy": "ddp", "workers": "2"},
}
CUT = {"strategy": "exact", "workers": "2", "storage": "cut"}
"""The interrupted run; its checkpoints are in a folder of their own."""


def command(code: Path, home: Path, job: str, conf: str, *settings: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "LOCKSTEP_HOME": str(home), "PYTHONPATH": str(code)}
    words = [sys.executable, str(code / f"jobs/{job}.py"), str(code / f"conf/{conf}.yaml"), *settings]
    # Ray's workers import from the folder that the driver was started in.
    return subprocess.Popen(words, cwd=code, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run_to_end(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate()
    if process.returncode:
        sys.exit(f"{' '.join(map(str, process.args))}: exit code {process.returncode}\n{output}")  # type: ignore[arg-type]
    return output


def train(code: Path, home: Path, database: str, **train: str) -> subprocess.Popen[str]:
    settings = [word for name, value in {**SETTINGS, **train}.items() for word in (f"--train.{name}", value)]
    return command(code, home, "train", "digits", *settings, "--tracking.uri", f"sqlite:///{home}/{database}.db")


def model_digest_from(home: Path, database: str, output: str) -> str:
    """The model's digest in MLflow, of the run that `output` names."""
    match = re.search(r"^run (\w+) of experiment", output, re.MULTILINE)
    assert match, output
    return str(MlflowClient(f"sqlite:///{home}/{database}.db").get_run(match[1]).data.tags["model.digest"])


def kill_during_training(code: Path, home: Path) -> None:
    """Begin a run, and interrupt it once it has a checkpoint."""
    process = train(code, home, "cut", **CUT)
    while process.poll() is None and not list(home.glob("cut/*/checkpoints/*/record.json")):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, output


def dataset(code: Path, home: Path, conf: str) -> tuple[str, str]:
    """Run a pipeline's ETL. Returns the name and the digest of the version."""
    folder = home / "data" / conf
    shutil.rmtree(folder, ignore_errors=True)
    run_to_end(command(code, home, "etl", conf, "--dataset.path", str(folder), "--tracking.uri", f"sqlite:///{home}/etl.db"))
    (manifest,) = folder.glob("*/manifest.json")
    return manifest.parent.name, str(json.loads(manifest.read_bytes())["digest"])


def models(code: Path, home: Path) -> Iterator[tuple[str, str]]:
    """Train models on the digits, and resume the interrupted run. Yields names and digests."""
    if (home / "cut").exists():
        resumed = run_to_end(train(code, home, "cut", **CUT))
        assert " resumes: " in resumed, resumed
        yield "exact, resumed", model_digest_from(home, "cut", resumed)
        (home / "cut.db").unlink()
        (home / "cut").rename(home / f"finished-{time.time_ns()}")
    for name, settings in MODELS.items():
        yield name, model_digest_from(home, "mlflow", run_to_end(train(code, home, "mlflow", **settings)))


def digests(code: Path, home: Path, confs: list[str]) -> dict[str, str]:
    """All digests by name; each is printed as soon as it is computed."""
    by_name: dict[str, str] = {}
    for conf in confs:
        if missing := [path for path in raw_paths(ROOT / "conf" / f"{conf}.yaml") if not Path(path).exists()]:
            print(f"skipping {conf}: {', '.join(missing)} does not exist", file=sys.stderr)
            continue
        version, by_name[conf] = dataset(code, home, conf)
        print(f"{conf:20} {by_name[conf]}  version {version}", flush=True)
    if "digits" in by_name:
        for name, digest in models(code, home):
            by_name[name] = digest
            print(f"{name:20} {digest}", flush=True)
    return by_name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path, help="folder of datasets, runs, and the digests of the previous call")
    parser.add_argument("--code", type=Path, default=ROOT)
    names = sorted(path.stem for path in (ROOT / "conf").glob("*.yaml"))
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="CONFIG", help=f"of {', '.join(names)}")
    arguments = parser.parse_args()
    os.environ.setdefault("LOCKSTEP_RAW", str(ROOT.parent / "shared" / "data"))
    home = arguments.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    file = home / "digests.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    by_name = digests(arguments.code.absolute(), home, arguments.only)
    if "digits" in by_name:
        kill_during_training(arguments.code.absolute(), home)
    file.write_text(json.dumps({**before, **by_name}, indent=1) + "\n")
    exact = {digest for name, digest in by_name.items() if name.startswith("exact")}
    changed = [name for name, digest in by_name.items() if before.get(name, digest) != digest]
    if len(exact) > 1:
        changed.append("exact, by workers")
    unchanged = ", ".join(name for name in by_name if name in before)
    print(f"changed: {', '.join(changed)}" if changed else f"the same as before: {unchanged or 'nothing to compare with yet'}")
    sys.exit(bool(changed))


if __name__ == "__main__":
    main()
