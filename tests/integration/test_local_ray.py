"""A Ray that a training starts for itself is this machine's alone."""

import json
import os
import subprocess
import sys

LISTENING = """
import json, psutil
from pipelines.config.train import Train
from pipelines.train.cluster import cluster

with cluster(Train()):
    own = [psutil.Process(), *psutil.Process().children(recursive=True)]
    found = {socket.laddr.ip for process in own for socket in process.net_connections("inet") if socket.status == psutil.CONN_LISTEN}
print(json.dumps(sorted(found)))
"""


def test_it_listens_on_loopback_alone() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run([sys.executable, "-c", LISTENING], env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["127.0.0.1", "::ffff:127.0.0.1"]
