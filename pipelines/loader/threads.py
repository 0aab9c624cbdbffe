"""Keeps background threads from starting OpenMP threads of their own."""

from functools import cache

import torch
from threadpoolctl import ThreadpoolController


def compute_alone() -> None:
    """Run the operations of the calling thread in that thread alone, from now on.

    By default OpenMP gives every computing thread a team of one thread per core. The teams compete for
    cores: on two cores reading took 1.5 times as long with them.
    """
    torch.get_num_threads()  # sets torch's default now; otherwise the thread's first operation would overwrite this setting
    _controller().limit(limits=1, user_api="openmp")


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
