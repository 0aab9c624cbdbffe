"""Restarts a server whenever it ends: python cluster/local/supervise.py COMMAND …

Ray does not restart a node that died, or that it gave up after a loss of connection. A server that never stayed up for
WELL_SECONDS is given up after TRIES, with its exit code. These forty lines are kept because systemd and supervisord would need a unit
file for each server, a place for it, and a process of their own, for the same restart.
"""

import os
import subprocess
import sys
import time
from typing import NoReturn

from sessions import end_rest_of_session, leave_on_signals

PAUSE_SECONDS = 2.0
WELL_SECONDS = 10.0
TRIES = 3


def main(command: list[str]) -> NoReturn:
    tries: int | None = TRIES
    while True:
        began = time.monotonic()
        # In this session, so that whoever ends that also ends the server if this one is gone.
        code = subprocess.Popen(command).wait()
        end_rest_of_session()
        if time.monotonic() - began > WELL_SECONDS:
            tries = None
        if tries is not None and (tries := tries - 1) == 0:
            sys.exit(code)
        print(f"ended with {code}, and is started again: {' '.join(command)}", file=sys.stderr, flush=True)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    if os.getsid(0) != os.getpid():
        sys.exit("this ends what is left in its session, and so has to lead one: setsid python cluster/local/supervise.py …")
    leave_on_signals()
    try:
        main(sys.argv[1:])
    finally:
        end_rest_of_session()
