"""Imported by each process of a Ray of our own before it takes a task: imports what a worker of a training needs."""

import os

from pipelines.runtime.imports import NO_PRELOAD, import_modules

if NO_PRELOAD not in os.environ:
    import_modules(["pipelines.launch.worker", "pipelines.tracking"])  # any may be the worker that logs
