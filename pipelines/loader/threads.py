"""Threads that compute beside a model: each by itself."""

from functools import cache

import torch
from threadpoolctl import ThreadpoolController


def compute_alone() -> None:
    """Keep the operations of the calling thread in it, for as long as it lives.

    By default OpenMP gives every thread that computes a team as large as the machine. Such teams wait for each other's
    cores: on two, reading took half as long again with them.
    """
    torch.get_num_threads()  # sets the default now; else it would do so, over ours, at the thread's first operation
    _controller().limit(limits=1, user_api="openmp")


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
