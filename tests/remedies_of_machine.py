"""Remedies of what a machine lacks: Java, memory, disks, shared memory, ports, GPUs, packages and servers."""

import os
import platform
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from copy import deepcopy
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from config_remedies import VALUES
from disks import small_file_system, write_program
from loopback import free_port

from pipelines.config.load import home, parse, with_absolute_paths
from pipelines.data.versions import storage
from pipelines.doctor import examine, packages
from pipelines.errors import LockstepError
from pipelines.runtime import machine
from pipelines.runtime.disks import Reading

Do = Callable[[Path], Any]
REAL_JAVA = str(Path(shutil.which("java") or "/nowhere/bin/java").resolve().parents[1])


def check(reading: Reading) -> None:
    if reading.fault:
        raise LockstepError(reading.fault)


def java(home: str, path: str = "") -> None:
    with patch.dict(os.environ, {"JAVA_HOME": home, "PATH": path or os.environ["PATH"]}):
        check(machine.java())


def memory(folder: Path, free: int) -> None:
    """A container of 4 GiB, as cgroups of version 2 describe it."""
    (folder / "memory.max").write_text(str(4 * 2**30))
    (folder / "memory.current").write_text(str(4 * 2**30 - free))
    with patch.object(machine, "_CGROUPS", ((str(folder / "memory.max"), "memory.current"),)):
        check(machine.memory())


def doctor(name: str, values: dict[str, Any] | None = None, **environment: str) -> None:
    """One check of the doctor, with environment variables."""
    with patch.dict(os.environ, environment):
        config = with_absolute_paths(parse(deepcopy({**VALUES, **values}), "x.yaml"), home()) if values else None
        (reading,) = [item.read() for item in (*examine._machine_checks(), *examine._server_checks(config)) if item.name == name]
    check(reading)


def dev_shm(folder: Path, size: str) -> None:
    with small_file_system(folder / "shm", size), patch.object(machine, "SHARED_MEMORY", str(folder / "shm")):
        check(machine.dev_shm())


def small_home(folder: Path, is_small: bool) -> None:
    with small_file_system(folder / "disk"):
        doctor("home disk", LOCKSTEP_HOME=str(folder / "disk" if is_small else folder))


def ray_disk(folder: Path, size: str) -> None:
    with small_file_system(folder / "disk", size), patch.object(examine, "RAY_FOLDER", str(folder / "disk")):
        doctor("ray disk")


def data_disk(folder: Path, is_small: bool) -> None:
    with small_file_system(folder / "disk"):
        place = str((folder / "disk" if is_small else folder) / "data")
        doctor("data disk", {"dataset": {**VALUES["dataset"], "path": place}}, LOCKSTEP_HOME="/nowhere")


def mlflow_folder(folder: Path, is_file: bool) -> None:
    if is_file:
        (folder / "a").touch()
    doctor("mlflow", MLFLOW_TRACKING_URI=f"sqlite:///{folder}/a/mlflow.db")


def write_file_of_version(folder: Path, size: str) -> None:
    with small_file_system(folder / "disk", size), storage.store_errors(str(folder)):
        (folder / "disk/file").write_bytes(bytes(200_000))


def gpus(folder: Path, output: str, code: int = 0, cuda: str | None = None, usable: int = 0) -> None:
    """What a driver says, as nvidia-smi prints it, and how many of its GPUs torch can use."""
    write_program(folder / "bin/nvidia-smi", output, code=code)
    with (
        patch.dict(os.environ, {"PATH": f"{folder}/bin"}),
        patch.object(torch.version, "cuda", cuda),
        patch.object(torch.cuda, "device_count", lambda: usable),
    ):
        check(machine.gpus())


def packages_with(folder: Path, name: str, number: str, read: Callable[[], Reading]) -> None:
    """The packages, with another version of one than is installed."""
    metadata = folder / f"site/{name}-{number}.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    with patch("sys.path", [str(folder / "site"), *sys.path]):
        check(read())


def ui_port(is_taken: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with patch.object(examine, "UI_PORT", listener.getsockname()[1] if is_taken else free_port()):
            doctor("ui port")


def endpoint_port(is_taken: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        doctor("port", {"endpoint": {"port": listener.getsockname()[1] if is_taken else free_port()}})


def python_version(release: str) -> None:
    with patch.object(platform, "python_version", lambda: release):
        check(packages.python_version())


def distribution(name: str) -> None:
    with patch.object(packages, "_DISTRIBUTION", name):
        check(packages.package_versions())


def bytecode(folder: Path, is_compiled: bool) -> None:
    package = folder / "site/ray/__init__.py"
    package.parent.mkdir(parents=True, exist_ok=True)
    package.write_text("")
    if is_compiled:
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder / "site")], check=True)
    with patch.object(sys, "dont_write_bytecode", True), patch.object(sysconfig, "get_path", lambda _: str(folder / "site")):
        check(packages.bytecode())


def missing_module(is_missing: bool) -> None:
    """A check whose library is not there."""
    check(examine._read(examine.Check("x", lambda: import_module("nowhere" if is_missing else "json") and Reading(""), None)))


CARD = "NVIDIA H100, 560.35"
CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "Spark needs Java {} or newer; install one": (
        lambda folder: java("", path=str(folder)),
        (
            lambda folder: java(REAL_JAVA),
            lambda folder: java(str(write_program(folder / "bin/java", 'openjdk version "21.0.1"', stream=2).parents[1])),
        ),
    ),
    "free some, or give the machine or container more": (
        lambda folder: memory(folder, 2**30),
        (lambda folder: memory(folder, 3 * 2**30),),
    ),
    "set LOCKSTEP_HOME to another folder": (
        lambda folder: small_home(folder, is_small=True),
        (lambda folder: small_home(folder, is_small=False),),
    ),
    "free some, or mount a larger disk there": (
        lambda folder: ray_disk(folder, "100k"),
        (lambda folder: ray_disk(folder, "2g"),),
    ),
    "free some, and run the same command again": (
        lambda folder: write_file_of_version(folder, "100k"),
        (lambda folder: write_file_of_version(folder, "1m"),),
    ),
    "set dataset.path and train.storage to other folders": (
        lambda folder: data_disk(folder, is_small=True),
        (lambda folder: data_disk(folder, is_small=False),),
    ),
    "give a container more, as docker run --shm-size=1g does": (
        lambda folder: dev_shm(folder, "64m"),
        (lambda folder: dev_shm(folder, "1g"),),
    ),
    "install a driver that fits the kernel": (
        lambda folder: gpus(folder, "NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.", code=9),
        (lambda folder: gpus(folder, CARD, cuda="12.6", usable=1),),
    ),
    "which is built without CUDA; install torch with CUDA": (
        lambda folder: gpus(folder, CARD),
        (lambda folder: gpus(folder, CARD, cuda="12.6", usable=1),),
    ),
    "install a newer driver, or a torch built for an older CUDA": (
        lambda folder: gpus(folder, CARD, cuda="13.0"),
        (lambda folder: gpus(folder, CARD, cuda="13.0", usable=1),),
    ),
    "outside the range of this project; install it": (
        lambda folder: packages_with(folder, "xxhash", "2.0", packages.package_versions),
        (lambda folder: packages_with(folder, "xxhash", version("xxhash"), packages.package_versions),),
    ),
    "install the tested ones: pip install --constraint": (
        lambda folder: packages_with(folder, "xxhash", "3.2.1", packages.version_notes),
        (lambda folder: packages_with(folder, "xxhash", version("xxhash"), packages.version_notes),),
    ),
    "write it once: ": (
        lambda folder: bytecode(folder, is_compiled=False),
        (lambda folder: bytecode(folder, is_compiled=True),),
    ),
    "so its packages are unknown; install it": (
        lambda folder: distribution("lockstep-nowhere"),
        (lambda folder: distribution("lockstep-pipelines"),),
    ),
    "make an environment with another": (lambda folder: python_version("3.10.4"), (lambda folder: python_version("3.12.1"),)),
    "choose another port: make ui PORT=": (lambda folder: ui_port(is_taken=True), (lambda folder: ui_port(is_taken=False),)),
    "set endpoint.port to a free one": (
        lambda folder: endpoint_port(is_taken=True),
        (lambda folder: endpoint_port(is_taken=False),),
    ),
    "set tracking.uri to a file in another folder": (
        lambda folder: mlflow_folder(folder, is_file=True),
        (lambda folder: mlflow_folder(folder, is_file=False),),
    ),
    "so this is unknown; install what the line about packages says": (
        lambda folder: missing_module(is_missing=True),
        (lambda folder: missing_module(is_missing=False),),
    ),
}
