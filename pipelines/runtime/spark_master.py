"""Says where a master of Spark runs its tasks."""

import re


def is_local(master: str) -> bool:
    """Whether a master runs all of Spark in one JVM of this machine."""
    return re.match(r"local(\[|$)", master) is not None
