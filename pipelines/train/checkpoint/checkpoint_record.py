"""The record of a checkpoint, which holds all but tensors, and the digest log of a run, for a replay check to compare with.

checkpoints/…/record.json     all that a run continues from, but tensors
trail/step-000001200.json     one per checkpoint, kept when it is pruned: digests of model and optimizer, losses since the last
"""

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from pipelines.data.versions.checksummed_json import seal, unseal_or_none
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.reduce.dtensor import tensor_name

FORMAT = 2
RECORD = "record.json"


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


def to_json(record: Record) -> bytes:
    return seal(asdict(record))


def from_json(content: bytes) -> dict[str, Any] | None:
    """A record's values; None if the content is damaged."""
    return unseal_or_none(content)


def newest_step(directory: RunDirectory) -> int | None:
    """The last step of the newest complete checkpoint; None if there is none."""
    contents = (directory.get(f"checkpoints/{base}/{RECORD}") for base in directory.names("checkpoints"))
    records = [values for content in contents if content is not None and (values := from_json(content)) is not None]
    return max((int(values["step"]) for values in records), default=None)


DIGEST_LOG = "trail"  # the name on disk, which existing runs have


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
