"""Rules about a machine: Java, memory, shared memory, free ports and GPUs. `disks` has those about disks.

`lockstep doctor` asks every rule; the error of a command asks the one that may explain it. Each function returns what is there, and the
fault with its remedy if that is not enough.
"""

import os
import re
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil

from pipelines.runtime.disks import Reading, size_text

JAVA = 17
"""The oldest version that Spark runs on; cluster/local/java.sh has it too, which runs before anything is installed."""
LEAST_MEMORY_BYTES = 2 * 2**30
"""Java's driver, its Python workers, and two workers of a training on a small table."""
SHARED_MEMORY = "/dev/shm"
OBJECT_STORE_BYTES = 128 * 2**20
"""Of a Ray that a training starts: small, since Ray's shared memory is hardly used here."""
SHARED_MEMORY_REMEDY = "give a container more, as docker run --shm-size=1g does"
_CGROUPS = (("/sys/fs/cgroup/memory.max", "memory.current"), ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Limit and use of a container's memory, in versions 2 and 1 of cgroups."""


def java() -> Reading:
    """The Java that Spark would start: of JAVA_HOME, else of PATH."""
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java")
    remedy = f"Spark needs Java {JAVA} or newer; install one, such as openjdk-{JAVA}-jre-headless, or set JAVA_HOME to the folder of one"
    try:
        answer = subprocess.run([program or "java", "-version"], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return Reading("none", f"{f'JAVA_HOME is {home}, which has no' if home else 'PATH has no'} Java that starts: {remedy}")
    version = re.search(r'version "((\d+)[^"]*)"', answer.stderr)
    text = f"{version[1] if version else 'of an unknown version'}, {program}"
    return Reading(text, "" if version and int(version[2]) >= JAVA else f"Java is {text}: {remedy}")


def memory() -> Reading:
    """The memory that new processes can have: of this machine, or of the container's limit."""
    machine = psutil.virtual_memory()
    total, free = int(machine.total), int(machine.available)
    for limit, use in _CGROUPS:
        with suppress(OSError, ValueError):  # no such cgroup, or "max"
            bound = int(Path(limit).read_text(encoding="utf-8"))
            if bound < total:
                total, free = bound, min(free, bound - int(Path(limit).with_name(use).read_text(encoding="utf-8")))
    text = f"{size_text(free)} free of {size_text(total)}"
    fault = (
        f"memory: {text}, and an ETL or a training takes {size_text(LEAST_MEMORY_BYTES)}; free some, or give the machine or container more"
    )
    return Reading(text, fault if free < LEAST_MEMORY_BYTES else "")


def dev_shm() -> Reading:
    """The space of /dev/shm, which a container may limit. Ray falls back on a disk, which is slow; NCCL fails."""
    if not Path(SHARED_MEMORY).is_dir():
        return Reading(f"no {SHARED_MEMORY} on this system")
    free = shutil.disk_usage(SHARED_MEMORY).free
    text = f"{size_text(free)} free in {SHARED_MEMORY}"
    fault = f"{text}, and Ray takes {size_text(OBJECT_STORE_BYTES)}; {SHARED_MEMORY_REMEDY}"
    return Reading(text, fault if free < OBJECT_STORE_BYTES else "")


def port(host: str, number: int) -> Reading:
    """Whether a server may listen on the port; a connection that has just closed does not count. The fault has no remedy: the caller
    knows the setting."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError as error:
            return Reading(f"{host}:{number}", f"{host}:{number}: {error}")
    return Reading(f"{host}:{number} is free")


def has_gpus() -> bool:
    """Whether the system has a device of NVIDIA's driver. Asks no library: torch takes a second to import."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def gpus() -> Reading:
    """The GPUs that the driver lists, if torch can use all of them."""
    program = shutil.which("nvidia-smi")
    query = ["--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run([program or "nvidia-smi", *query], capture_output=True, text=True, check=True, timeout=60)
    except FileNotFoundError:
        return Reading("none, training uses CPUs")
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stdout", None) or str(error)
        return Reading("unknown", f"nvidia-smi fails: {output.strip().splitlines()[0]}; install a driver that fits the kernel, or restart")
    cards = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    if not cards:
        return Reading("none, training uses CPUs")
    import torch  # noqa: PLC0415, slow, and needed only where there are GPUs

    text = f"{len(cards)} × {cards[0].replace(', ', ', driver ')}, torch {torch.__version__}"
    if torch.version.cuda is None:
        return Reading(text, f"GPUs are {text}, which is built without CUDA; install torch with CUDA, see https://pytorch.org/get-started")
    usable, visible = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if usable == 0 and visible != "":
        driver = f"torch is built for CUDA {torch.version.cuda} and uses none"
        return Reading(text, f"GPUs are {text}: {driver}; install a newer driver, or a torch built for an older CUDA")
    limited = f", {usable} by CUDA_VISIBLE_DEVICES" if visible is not None else ""
    return Reading(f"{text} for CUDA {torch.version.cuda}{limited}")
