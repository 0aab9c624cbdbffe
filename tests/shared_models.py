"""Model processes that tests share: each takes seconds to import what its model needs."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType

import pytest

from pipelines.serving.model.process import ModelProcess, Takes


class SharedProcesses:
    """Opens one process for all copies of a model, in place of `ModelProcess`, and ends it last."""

    def __init__(self) -> None:
        self._processes: dict[tuple[bytes, Takes], ModelProcess] = {}

    def __call__(self, folder: str | Path, takes: Takes = "rows") -> AbstractContextManager[ModelProcess]:
        key = Path(folder, "digests.json").read_bytes(), takes
        if key not in self._processes:
            self._processes[key] = ModelProcess(folder, takes)
        return nullcontext(self._processes[key])

    def close(self) -> None:
        for process in self._processes.values():
            process.close()

    @contextmanager
    def within(self, module: ModuleType) -> Iterator[None]:
        """The module opens its models here."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(module, "ModelProcess", self)
            yield


@contextmanager
def shared_processes() -> Iterator[SharedProcesses]:
    processes = SharedProcesses()
    try:
        yield processes
    finally:
        processes.close()
