"""Ray's command line for nodes that listen on 127.0.0.1 and nowhere else: python cluster/local/ray_on_loopback.py start …

On Linux Ray takes 127.0.0.1 for a name of the machine's address in its network, and listens to all of it. A variable
that Ray has for other systems turns that off, but its command line then refuses a second node; so here it is set for
the processes that the command starts, and the command itself is told the address.
"""

import os

from loopback import LOOPBACK
from ray.scripts.scripts import main

from pipelines.compat.ray import known_as

VARIABLES = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Of whoever connects to such nodes with `ray.init`; jobs have it from their node."""

if __name__ == "__main__":
    known_as(LOOPBACK)
    os.environ.update(VARIABLES)
    main()
