"""Keeps background threads from starting OpenMP threads of their own."""

import torch
from threadpoolctl import ThreadpoolController

# Created here and not in a thread: it walks the list of loaded libraries, whose lock it holds while it waits for Python's. A thread
# that imports a compiled module meanwhile holds Python's lock and waits for the list's, both of them for ever.
_CONTROLLER = ThreadpoolController()


def limit_openmp_threads() -> None:
    """Run the operations of the calling thread in that thread alone, from now on.

    By default OpenMP gives every computing thread a team of one thread per core. The teams compete for
    cores: on two cores reading took 1.5 times as long with them.
    """
    torch.get_num_threads()  # sets torch's default now; otherwise the thread's first operation would overwrite this setting
    _CONTROLLER.limit(limits=1, user_api="openmp")
