"""A Slurm of our own: a controller and a daemon on each of some hosts, with a key that only it has."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hosts import Host
from sessions import process

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
_CONF = """
ClusterName=test
SlurmctldHost={first.name}({first.address})
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""
_START_SECONDS = 60


def missing() -> str:
    """What this machine lacks; empty if nothing."""
    lacking = [name for name in PROGRAMS if not shutil.which(name)]
    return f"no {', '.join(lacking)} here; Debian, Ubuntu: sudo apt-get install slurm-wlm munge" if lacking else ""


@contextmanager
def slurm(folder: Path, nodes: Sequence[Host]) -> Iterator[dict[str, str]]:
    """Nodes that say they have the CPUs that the script asks for; the controller runs on the first. What `sbatch` needs in its
    environment."""
    described = "\n".join(f"NodeName={host.name} NodeAddr={host.address} CPUs=8 RealMemory=4000" for host in nodes)
    (folder / "slurm.conf").write_text(_CONF.format(first=nodes[0], folder=folder, nodes=described))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # or it looks for those that a host of ours does not show
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    for name in ("state", *(f"spool-{host.name}" for host in nodes)):
        (folder / name).mkdir()
    munge = folder / "munge"
    private = [f"--key-file={munge}.key", f"--socket={munge}.socket", f"--pid-file={munge}.pid", f"--seed-file={munge}.seed"]
    variables = {"SLURM_CONF": str(folder / "slurm.conf")}
    with ExitStack() as running:

        def start(name: str, command: list[str]) -> None:
            log = running.enter_context((folder / f"{name}.log").open("w"))
            options = [f"{key}={value}" for key, value in variables.items()]
            running.enter_context(process(["env", *options, *command], log, stop=signal.SIGTERM))

        start("munged", ["munged", "--foreground", "--force", f"--log-file={munge}.log", *private])
        start("slurmctld", [*nodes[0].enter, "slurmctld", "-D", "-i"])
        for host in nodes:
            start(f"slurmd-{host.name}", [*host.enter, "slurmd", "-D", "-N", host.name])
        try:
            _wait(variables, len(nodes), folder)
            yield variables
        finally:  # a step outlives the daemon that started it
            subprocess.run(["scancel", "--user=root"], env={**os.environ, **variables}, check=False)
            _wait(variables, len(nodes), folder)


def _wait(variables: dict[str, str], nodes: int, folder: Path) -> None:
    deadline, states = time.monotonic() + _START_SECONDS, ""
    while states.split() != ["idle"] * nodes:
        if time.monotonic() > deadline:
            logs = "\n".join(f"{log.name}:\n{log.read_text()[-1000:]}" for log in sorted(folder.glob("*.log")))
            raise AssertionError(f"Slurm's nodes are {states.split()}\n{logs}")
        time.sleep(0.5)
        command = ["sinfo", "--Node", "--noheader", "--format=%T"]
        states = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False).stdout
