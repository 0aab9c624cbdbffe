"""Restarts a server whenever it ends: python cluster/local/supervise.py COMMAND …

Ray does not restart a node that died, or that it declared dead after a loss of connection. If a server never runs for
WELL_SECONDS, this gives up after TRIES, with the server's exit code. It is kept because systemd and supervisord would need
a unit file for each server, a place for it, and a process of their own for the same restart.
"""

import os
import subprocess
import sys
import time
from typing import NoReturn

from sessions import end_other_processes, leave_on_signals

PAUSE_SECONDS = 2.0
WELL_SECONDS = 10.0
TRIES = 3


def main(command: list[str]) -> NoReturn:
    tries: int | None = TRIES
    while True:
        start = time.monotonic()
        # In this session, so that ending the session ends the server even if this process is gone.
        code = subprocess.Popen(command).wait()
        end_other_processes()
        if time.monotonic() - start > WELL_SECONDS:
            tries = None
        if tries is not None and (tries := tries - 1) == 0:
            sys.exit(code)
        print(f"exited with {code}, restarting: {' '.join(command)}", file=sys.stderr, flush=True)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    if os.getsid(0) != os.getpid():
        sys.exit("this kills all other processes of its session, so it must lead one: setsid python cluster/local/supervise.py …")
    leave_on_signals()
    try:
        main(sys.argv[1:])
    finally:
        end_other_processes()
