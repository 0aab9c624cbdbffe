"""The record of a checkpoint, which holds all but tensors; the digest log of a run, for a replay check to compare with; and the
fingerprints of what workers hold alike, which are compared whenever a checkpoint is made.

checkpoints/…/record.json     all that a run continues from, but tensors
trail/step-000001200.json     one per checkpoint, kept when it is pruned: digests of model and optimizer, losses since the last

Synchronous workers do not send each other weights: each computes the same update for itself. If one rounds differently, as with other
threads or another processor, weights differ by a bit, and later by more. A checkpoint, which has each tensor from one worker only,
would then be of a model that no worker has. So no checkpoint is completed before all workers agree on it.
"""

import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from xxhash import xxh3_128

from pipelines.config.train.strategy import ONE_WORKER
from pipelines.data.versions.storage import unseal_or_none
from pipelines.errors import DriftError
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.dtensor import local_parts, tensor_name

FORMAT = 2
RECORD = "record.json"
DIGEST_LOG = "trail"
"""The name on disk, which existing runs have."""
_LOOP_STATE = ("step", "epochs", "validated", "best_epoch", "best", "best_loss", "improved_epoch", "best_metrics")
"""Fields of the loop's state that are equal on all workers: times differ, and one worker asks parameter servers for rows."""
Fingerprints = dict[str, str]
"""A short digest by name, of a tensor, or of a worker's part of one, or of another value."""


@dataclass(frozen=True)
class Record:
    """The contents of a checkpoint besides tensors."""

    step: int
    """Optimizer steps done."""
    position: dict[str, int]
    """The loader's state."""
    order: dict[str, Any]
    """The arguments of the order: a position is valid only in the same order."""
    dataset_digest: str
    state: dict[str, Any]
    """The loop's state: best epoch, rows, curves."""
    best: bool = False
    """Whether no earlier epoch had a better validation metric."""
    unsent: list[Any] = field(default_factory=list)
    """Metrics that the tracking server had not acknowledged."""
    losses: list[float] = field(default_factory=list)
    """Loss sums of the steps since the last save."""
    digests: dict[str, str] = field(default_factory=dict)
    """The digest of every tensor by name, added when the checkpoint is committed."""
    format: int = FORMAT


def newest_step(directory: RunDirectory) -> int | None:
    """The last step of the newest complete checkpoint; None if there is none."""
    contents = (directory.get(f"checkpoints/{base}/{RECORD}") for base in directory.names("checkpoints"))
    records = [values for content in contents if content is not None and (values := unseal_or_none(content)) is not None]
    return max((int(values["step"]) for values in records), default=None)


@dataclass
class DigestLog:
    losses: dict[int, float] = field(default_factory=dict)
    """Loss sums of global batches by step, counted from 1, computed with the weights before the step."""
    digests: dict[int, dict[str, str]] = field(default_factory=dict)
    """Digests of every tensor by name, by the step after which it was saved."""
    machine: str = ""
    """The machine that trained, as `describe_machine` has it."""


def append_step(directory: RunDirectory, step: int, digests: Mapping[str, str], losses: Sequence[float], machine: str) -> None:
    """Add a saved step; `losses` are those of the steps since the last save, up to this one.

    A run that stopped after an epoch's last step resumes there, and saves that step again when it has validated the epoch.
    """
    name = f"{DIGEST_LOG}/step-{step:09d}.json"
    if not losses and (before := directory.get_json(name)) is not None:
        losses = before["losses"]
    directory.put_json(name, {"step": step, "machine": machine, "losses": losses, "digests": digests})


def forget_steps_after(directory: RunDirectory, step: int) -> None:
    """Remove the entries after `step`: the run resumes there and repeats the later steps."""
    for saved, name in _list_steps(directory):
        if saved > step:
            directory.remove(name)


def copy_digest_log(source: RunDirectory, target: RunDirectory, last_step: int) -> None:
    """Copy the entries of a run until that step into the log of another one."""
    for saved, name in _list_steps(source):
        if saved <= last_step:
            source.copy(name, target)


def read_digest_log(directory: RunDirectory) -> DigestLog:
    """The whole log of a run; empty if there is none."""
    log = DigestLog()
    for step, name in _list_steps(directory):
        if (values := directory.get_json(name)) is not None:
            losses = values["losses"]
            log.losses.update(zip(range(step - len(losses) + 1, step + 1), losses, strict=True))
            log.digests[step] = values["digests"]
            log.machine = values["machine"]
    return log


def differing_tensors(by_worker: Sequence[Mapping[str, str]], recorded: Mapping[str, str]) -> list[str]:
    """Names of the tensors whose digest is not the recorded one on a worker that holds them, or that only one side has.

    Tensors that are spread over workers have a digest for every part. If they were saved in other parts, digests
    cannot be compared; the checksums of files are.
    """
    names = [name for digests in by_worker for name in digests]
    parts, recorded_parts = _parts_by_name(names), _parts_by_name(recorded)
    redivided = {name for name in parts.keys() & recorded_parts.keys() if parts[name] != recorded_parts[name]}
    compared = [name for name in dict.fromkeys(names + sorted(recorded)) if tensor_name(name) not in redivided]
    return [name for name in compared if {digests[name] for digests in by_worker if name in digests} != {recorded.get(name)}]


def _parts_by_name(parts: Iterable[str]) -> dict[str, set[str]]:
    by_name: dict[str, set[str]] = {}
    for part in parts:
        by_name.setdefault(tensor_name(part), set()).add(part)
    return by_name


def _list_steps(directory: RunDirectory) -> list[tuple[int, str]]:
    """Saved steps in order, with their files' names. Drafts of a killed worker are ignored."""
    matches = (re.fullmatch(r"step-(\d+)\.json", base) for base in directory.names(DIGEST_LOG))
    return sorted((int(match[1]), f"{DIGEST_LOG}/{match[0]}") for match in matches if match)


def describe_machine(device: torch.device) -> str:
    """The processor model and the version of torch: besides dataset and config, the bits of a model depend on them."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    cpuinfo = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(encoding="utf-8"), re.MULTILINE) if cpuinfo.exists() else []
    return f"{models[0] if models else platform.machine()}, torch {torch.__version__}"


def fingerprints(state: Mapping[str, Any], record: Record) -> Fingerprints:
    """Take fingerprints of all that this worker would save: tensors, whose names say which part they are, and every other value.

    Runs beside training: xxHash takes a tenth of the time of the SHA-256 that rank 0 also computes.
    """
    tensor_fingerprints: Fingerprints = {}
    for name, tensor in local_parts(state).items():
        content = tensor.detach().cpu().contiguous()
        digest = xxh3_128(f"{content.dtype} {tuple(content.shape)}\n".encode())  # the object: the function holds the GIL
        digest.update(content.reshape(-1).view(torch.uint8).numpy().data)
        tensor_fingerprints[name] = digest.hexdigest()
    values = {name: repr(value) for name, value in _values_beside_tensors(state)}
    loop_state = {name: record.state.get(name) for name in _LOOP_STATE}
    record_values = {"position": record.position, "best": record.best, **loop_state}
    return tensor_fingerprints | values | {f"record.{name}": repr(value) for name, value in record_values.items()}


def check_agreement(by_worker: Sequence[Fingerprints], step: int, agreed_step: int | None, one_worker_flags: str = ONE_WORKER) -> None:
    """Raise DriftError, on all workers alike, for the first name that several workers hold with different values.

    `by_worker` are the fingerprints after `step` steps, by rank; `agreed_step` is the last step after which all workers agreed, if any;
    `one_worker_flags` are those with which one worker goes on.
    """
    first_values, differing = Fingerprints(), set[str]()
    for fingerprints in by_worker:
        differing |= {name for name, value in fingerprints.items() if first_values.setdefault(name, value) != value}
    if not differing:
        return
    name = next(name for name in first_values if name in differing)
    ranks: dict[str, list[str]] = {}
    for rank, fingerprints in enumerate(by_worker):
        if name in fingerprints:
            ranks.setdefault(fingerprints[name], []).append(str(rank))
    groups = " than on ".join(f"worker{'s' if len(group) > 1 else ''} {', '.join(group)}" for group in ranks.values())
    before = f"after step {agreed_step} all was equal" if agreed_step is not None else "nothing was compared before"
    raise DriftError(
        f"the workers have parted: after step {step}, {name} has another value on {groups} ({before}); every worker must compute the same "
        f"update, which takes the same processor, versions and threads on all; on such workers, or with {one_worker_flags}, the same "
        f"command goes on from {f'step {agreed_step}' if agreed_step else 'the start'}"
    )


def _values_beside_tensors(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in nested mappings that is no tensor, by dotted name: learning rates, the scale of fp16."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _values_beside_tensors(value, f"{prefix}{name}.")
        elif not isinstance(value, Tensor):
            yield f"{prefix}{name}", value
