"""Ray's command line for nodes that listen on 127.0.0.1 only: python cluster/local/ray_on_loopback.py start …

On Linux, Ray replaces 127.0.0.1 by the machine's address in its network, and listens there. A variable that Ray has for
other systems turns that off, but then its command line refuses a second node. So here the variable is set only for the
processes that the command starts, and the command itself gets the address directly.
"""

import os

from loopback import LOOPBACK
from ray.scripts.scripts import main

from pipelines.runtime.compat.ray import set_own_address

VARIABLES = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""For processes that connect to such nodes with `ray.init`; jobs inherit it from their node."""

if __name__ == "__main__":
    set_own_address(LOOPBACK)
    os.environ.update(VARIABLES)
    main()
