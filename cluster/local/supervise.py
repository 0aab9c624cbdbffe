"""A server that is started again whenever it ends, until this ends: python cluster/local/supervise.py COMMAND …

Ray brings no node back: one that died, or that was cut off for so long that the others gave it up, has to start anew.
"""

import signal
import sys
import time

from sessions import leave_on_signals, process

PAUSE_SECONDS = 2.0

if __name__ == "__main__":
    leave_on_signals()
    while True:
        with process(sys.argv[1:], stop=signal.SIGKILL) as server:
            code = server.wait()
        print(f"ended with {code}, and is started again: {' '.join(sys.argv[1:])}", file=sys.stderr, flush=True)
        time.sleep(PAUSE_SECONDS)
