"""Compares what workers hold alike, whenever a checkpoint is made.

Synchronous workers do not send each other weights: each computes the same update for itself. If one rounds differently, as with other
threads or another processor, weights differ by a bit, and later by more. A checkpoint, which has each tensor from one worker only,
would then be of a model that no worker has. So no checkpoint is completed before all workers agree on it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from xxhash import xxh3_128

from pipelines.config.train.strategy import ONE_WORKER
from pipelines.errors import DriftError
from pipelines.train.checkpoint.checkpoint_record import Record
from pipelines.train.reduce.dtensor import local_parts

_LOOP_STATE = ("step", "epochs", "validated", "best_epoch", "best", "best_loss", "improved_epoch", "best_metrics")
"""Fields of the loop's state that are equal on all workers: times differ, and one worker asks parameter servers for rows."""

Fingerprints = dict[str, str]
"""A short digest by name, of a tensor, or of a worker's part of one, or of another value."""


def fingerprints(state: Mapping[str, Any], record: Record) -> Fingerprints:
    """Take fingerprints of all that this worker would save: tensors, whose names say which part they are, and every other value.

    Runs beside training: xxHash takes a tenth of the time of the SHA-256 that rank 0 also computes.
    """
    tensor_fingerprints = {name: _fingerprint(tensor) for name, tensor in local_parts(state).items()}
    values = {name: repr(value) for name, value in _values_beside_tensors(state)}
    loop_state = {name: record.state.get(name) for name in _LOOP_STATE}
    record_values = {"position": record.position, "best": record.best, **loop_state}
    return tensor_fingerprints | values | {f"record.{name}": repr(value) for name, value in record_values.items()}


def check_agreement(by_worker: Sequence[Fingerprints], step: int, agreed_step: int | None, one_worker_flags: str = ONE_WORKER) -> None:
    """Raise DriftError, on all workers alike, for the first name that several workers hold with different values.

    `by_worker` are the fingerprints after `step` steps, by rank; `agreed_step` is the last step after which all workers agreed, if any;
    `one_worker_flags` are those with which one worker goes on.
    """
    if (name := _first_difference(by_worker)) is None:
        return
    ranks: dict[str, list[str]] = {}
    for rank, fingerprints_of_rank in enumerate(by_worker):
        if name in fingerprints_of_rank:
            ranks.setdefault(fingerprints_of_rank[name], []).append(str(rank))
    groups = " than on ".join(f"worker{'s' if len(group) > 1 else ''} {', '.join(group)}" for group in ranks.values())
    before = f"after step {agreed_step} all was equal" if agreed_step is not None else "nothing was compared before"
    raise DriftError(
        f"the workers have parted: after step {step}, {name} has another value on {groups} ({before}); every worker must compute the same "
        f"update, which takes the same processor, versions and threads on all; on such workers, or with {one_worker_flags}, the same "
        f"command goes on from {f'step {agreed_step}' if agreed_step else 'the start'}"
    )


def _first_difference(by_worker: Sequence[Fingerprints]) -> str | None:
    first_values: Fingerprints = {}
    differing: set[str] = set()
    for fingerprints_of_rank in by_worker:
        for name, value in fingerprints_of_rank.items():
            if first_values.setdefault(name, value) != value:
                differing.add(name)
    return next((name for name in first_values if name in differing), None)


def _fingerprint(tensor: Tensor) -> str:
    values = tensor.detach().cpu().contiguous()
    digest = xxh3_128(f"{values.dtype} {tuple(values.shape)}\n".encode())  # the object: the function holds the GIL
    digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _values_beside_tensors(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in nested mappings that is no tensor, by dotted name: learning rates, the scale of fp16."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _values_beside_tensors(value, f"{prefix}{name}.")
        elif not isinstance(value, Tensor):
            yield f"{prefix}{name}", value
