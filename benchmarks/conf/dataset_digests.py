"""Versions and digests of datasets: equal before and after a change that is not about numbers.

    LOCKSTEP_RAW=RAW python -m benchmarks.conf.dataset_digests FOLDER conf/digits.yaml conf/adult.yaml … [--code CHECKOUT]

Each config goes through `jobs/etl.py` once, into FOLDER, and is a line: name, version, digest. `--code` is a checkout to run
instead of this one.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def line(conf: Path, folder: Path, code: Path) -> str:
    """Name, version and digest of a dataset that is made anew."""
    made = folder / conf.stem
    shutil.rmtree(made, ignore_errors=True)
    words = [sys.executable, str(code / "jobs/etl.py"), str(conf), "--dataset.path", str(made), "--tracking.uri", f"sqlite:///{folder}/db"]
    environment = {**os.environ, "PYTHONPATH": str(code)}
    answer = subprocess.run(words, cwd=code, env=environment, capture_output=True, text=True, check=False)
    if answer.returncode:
        sys.exit(f"{conf}: exit code {answer.returncode}\n{answer.stderr[-2000:]}")
    (manifest,) = made.glob("*/manifest.json")
    return f"{conf.stem:16} {manifest.parent.name} {json.loads(manifest.read_bytes())['digest']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="versions are made here")
    parser.add_argument("conf", type=Path, nargs="+")
    parser.add_argument("--code", type=Path, default=ROOT)
    arguments = parser.parse_args()
    for conf in arguments.conf:
        print(line(conf.absolute(), arguments.folder.absolute(), arguments.code.absolute()), flush=True)


if __name__ == "__main__":
    main()
