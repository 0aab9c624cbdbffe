"""Private names of Python: what the interpreter does at its end, and what tarfile keeps of an archive."""

import atexit
import tarfile
import threading

from pipelines.runtime.compat import present

present(threading, "_shutdown")
present(atexit, "_run_exitfuncs")


def finish_threads_and_exit_functions() -> None:
    """Wait for threads that are not daemons, and call the exit functions. Nothing is left to do but to free memory."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def forget_members(archive: tarfile.TarFile) -> None:
    """Free the headers of the files that were read, of which a TarFile keeps all."""
    archive.members = []  # type: ignore[attr-defined]
