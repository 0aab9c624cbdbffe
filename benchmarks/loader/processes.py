"""Runs the measurements of benchmarks/loader/against_peers.py, each in a new process, on given cores, within a time limit."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
PEERS_VENV = ROOT / ".venv-peers"
REQUIREMENTS = Path(__file__).parent / "peers" / "requirements.txt"
SAMPLE_SECONDS = 0.25


def install_peers() -> None:
    """Install the peers into an environment of their own, again whenever REQUIREMENTS changes.

    Dependencies are not resolved, since the file lists all packages: MosaicML Streaming requires older versions than the
    others do, and torchvision, which has no build for some versions of torch.
    """
    stamp = PEERS_VENV / "installed"
    if stamp.exists() and stamp.read_text() == REQUIREMENTS.read_text():
        return
    print(f"installing the peers into {PEERS_VENV}, once", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", PEERS_VENV], check=True)
    pip = [PEERS_VENV / "bin" / "python", "-m", "pip", "install", "-qq"]
    torch = next(line for line in REQUIREMENTS.read_text().splitlines() if line.startswith("torch=="))
    subprocess.run([*pip, torch], check=True)
    subprocess.run([*pip, "--no-deps", "--requirement", REQUIREMENTS], check=True)
    stamp.write_text(REQUIREMENTS.read_text())


def peers_versions(*packages: str) -> dict[str, str]:
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    process = subprocess.run([PEERS_VENV / "bin" / "python", "-c", code, *packages], check=True, capture_output=True, text=True)
    return dict(zip((f"{package} (peers)" for package in packages), process.stdout.split(), strict=True))


def measure(module: str, name: str, *, cores: int, limit_seconds: float = 100, **arguments: Any) -> dict[str, Any]:
    """The measurement's result, with `memory_bytes`, the peak of its processes' private memory.

    Returns {} if the measurement fails or exceeds the limit, and prints the reason to stderr.
    """
    peer = module.startswith("peers.")
    interpreter = PEERS_VENV / "bin" / "python" if peer else Path(sys.executable)
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        with _affinity(cores):
            process = subprocess.Popen(
                [interpreter, "-m", f"benchmarks.loader.{module}", name, json.dumps(arguments)],
                env=_environment(cores, peer),
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        memory = 0
        try:
            while process.poll() is None and time.perf_counter() - started < limit_seconds:
                memory = max(memory, _private_bytes(process.pid))
                time.sleep(SAMPLE_SECONDS)
        finally:
            if process.poll() is None:  # it exceeded the limit, or this process was interrupted
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        errors.seek(0)
        lines, trouble = output.read().splitlines(), errors.read().splitlines()
    took = time.perf_counter() - started
    label = " ".join(str(value) for value in (module, name, arguments.get("peer", ""), arguments.get("path", "")) if value)
    print(f"  {label}, {cores} core(s): {took:.0f} s, exit {process.returncode}", file=sys.stderr)
    if not lines or not lines[-1].startswith("{"):
        print(*trouble[-5:], sep="\n", file=sys.stderr)
        return {}
    return {**json.loads(lines[-1]), "memory_bytes": memory}


@contextmanager
def _affinity(cores: int) -> Iterator[None]:
    """Processes that are started in this block may use the first `cores` of our cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _environment(cores: int, peer: bool) -> dict[str, str]:
    path = [ROOT] if peer else [ROOT, ROOT / "tests"]
    left_out = ("RAY_ADDRESS", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in left_out} | {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": str(cores),  # torch's and Arrow's threads
        "POLARS_MAX_THREADS": str(cores),
        "HF_DATASETS_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "HF_HOME": tempfile.gettempdir(),
    }


def _private_bytes(pid: int) -> int:
    """Private memory of a process and its descendants, without mapped files and shared memory."""
    total = 0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            memory = process.memory_info()
            total += memory.rss - memory.shared
    except psutil.NoSuchProcess:
        pass  # it has ended
    return total
