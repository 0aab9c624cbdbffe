"""Examines whether this machine can run the pipelines: `lockstep doctor`.

1. `packages`   compares Python and the installed packages with the ranges and the tested versions.
2. `servers`    asks MLflow and the stores, and finds what listens on the ports.
3. `examine`    runs all checks at once, in their order; a `Diagnosis` is right, a note, or wrong with a remedy. The rules about
                Java, memory, disks and GPUs are in `runtime.machine` and `runtime.disks`, since the errors of commands use them too.
"""
