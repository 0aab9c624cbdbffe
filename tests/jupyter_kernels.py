"""A kernel of Jupyter, in which a test runs cells and interrupts them, as a browser does."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).parents[1]
CELL_SECONDS = 240


@dataclass
class Kernel:
    manager: KernelManager
    client: BlockingKernelClient

    def run(self, cell: str, interrupt_at: str = "") -> str:
        """All that a cell shows, as JSON. With `interrupt_at` the kernel is interrupted as soon as the cell has shown that."""
        display: list[str] = []
        interrupted = False

        def take(message: dict[str, Any]) -> None:
            nonlocal interrupted
            if message["msg_type"] not in ("execute_input", "status"):
                display.append(f"{message['msg_type']} {json.dumps(message['content'], default=str)}")
            if interrupt_at and not interrupted and interrupt_at in "".join(display):
                interrupted = True
                self.manager.interrupt_kernel()

        self.client.execute_interactive(cell, timeout=CELL_SECONDS, allow_stdin=False, output_hook=take)
        assert interrupted or not interrupt_at, "\n".join(display)
        return "\n".join(display)


@contextmanager
def kernel_in(folder: Path) -> Iterator[Kernel]:
    """A kernel of this environment's Python that works in a folder, and writes nowhere else."""
    files = {name: str(folder / name) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")}
    environment = {**os.environ, **files, "LOCKSTEP_HOME": str(folder), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    manager = KernelManager(kernel_name="python3", connection_file=str(folder / "connection.json"))
    manager.start_kernel(cwd=str(folder), env=environment)
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
