"""A Ray that a training starts for itself is this machine's alone."""

import json
import os
import subprocess
import sys

LISTENING = """
import json
from contextlib import suppress

import psutil

from pipelines.config.train import Train
from pipelines.train.cluster import cluster

found = set()
with cluster(Train()):
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            found |= {socket.laddr.ip for socket in process.net_connections("inet") if socket.status == psutil.CONN_LISTEN}
print(json.dumps(sorted(found)))
"""


def test_it_listens_on_loopback_alone() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run([sys.executable, "-c", LISTENING], env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    found = set(json.loads(done.stdout.splitlines()[-1]))
    assert "127.0.0.1" in found and found <= {"127.0.0.1", "::ffff:127.0.0.1"}
