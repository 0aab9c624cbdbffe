"""A Ray that a training starts for itself is this machine's alone, and this user's."""

import json
import os
import subprocess
import sys
from pathlib import Path

LISTENING = """
import json
from contextlib import suppress
from pathlib import Path

import psutil
import ray

from pipelines.config.train import Train
from pipelines.launch.cluster import cluster

found = set()
with cluster(Train()):
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            found |= {socket.laddr.ip for socket in process.net_connections("inet") if socket.status == psutil.CONN_LISTEN}
    folder = Path(ray._private.worker._global_node.get_session_dir_path())
    private = [str(path) for path in folder.parents if path.stat().st_mode & 0o77 == 0]
print(json.dumps({"addresses": sorted(found), "private": private, "left": folder.exists()}))
"""


def test_nobody_else_reaches_it_or_reads_what_it_keeps(tmp_path: Path) -> None:
    environment = {**{name: value for name, value in os.environ.items() if not name.startswith("RAY_")}, "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", LISTENING], env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "127.0.0.1" in found["addresses"] and set(found["addresses"]) <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert len(found["private"]) == 1, "Ray lets everyone write to its own folders, so they lie in one of mode 700"
    assert not found["left"]
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in (tmp_path / ".ray").rglob("*")}
    assert ((tmp_path / ".ray").stat().st_mode & 0o777, modes) == (0o700, {".ray/auth_token": 0o600})
