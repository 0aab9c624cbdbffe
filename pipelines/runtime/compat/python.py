"""Private names of Python: what the interpreter does at its end, and what tarfile keeps of an archive."""

import atexit
import tarfile
import threading

from pipelines.runtime.compat import is_present


def finish_threads_and_exit_functions() -> bool:
    """Wait for threads that are not daemons, and call the exit functions: nothing is left to do but to free memory. False where Python can
    only do both as it ends."""
    instead = "Python frees all that it has imported, for a second"
    if not (is_present(threading, "_shutdown", instead=instead) and is_present(atexit, "_run_exitfuncs", instead=instead)):
        return False
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return True


def forget_members(archive: tarfile.TarFile) -> None:
    """Free the headers of the files that were read, of which a TarFile keeps all."""
    archive.members = []  # type: ignore[attr-defined]
