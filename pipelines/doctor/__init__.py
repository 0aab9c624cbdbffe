"""Examines whether this machine can run the pipelines: `lockstep doctor`.

1. `diagnosis`  is the result of a check: right, a note, or wrong with a remedy.
2. `packages`   compares Python and the installed packages with the ranges and the tested versions.
3. `servers`    asks MLflow and the stores, and finds what listens on the ports.
4. `examine`    runs all checks at once, in their order. The rules about Java, memory, disks and GPUs are in `runtime.machine`, since
                the errors of commands use them too.
"""
