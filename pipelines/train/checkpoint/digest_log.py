"""The digest log: losses and digests of a run, small enough to be kept, for a replay check to compare with.

trail/step-000001200.json    one per checkpoint, kept when it is pruned: digests of model and optimizer, losses since the last
"""

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.reduce.dtensor import name_of

DIGEST_LOG = "trail"  # the name on disk, which existing runs have


@dataclass
class DigestLog:
    losses: dict[int, float] = field(default_factory=dict)
    """Loss sums of global batches by step, counted from 1, computed with the weights before the step."""
    digests: dict[int, dict[str, str]] = field(default_factory=dict)
    """Digests of every tensor by name, by the step after which it was saved."""
    machine: str = ""
    """The `machine_of` the training."""


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
    for saved, name in _saved(directory):
        if saved > step:
            directory.remove(name)


def read_digest_log(directory: RunDirectory) -> DigestLog:
    """The whole log of a run; empty if there is none."""
    log = DigestLog()
    for step, name in _saved(directory):
        if (values := directory.get_json(name)) is not None:
            losses = values["losses"]
            log.losses.update(zip(range(step - len(losses) + 1, step + 1), losses, strict=True))
            log.digests[step] = values["digests"]
            log.machine = values["machine"]
    return log


def differing_tensors(by_worker: Sequence[Mapping[str, str]], recorded: Mapping[str, str]) -> list[str]:
    """Names of the tensors whose digest is not the recorded one on a worker that holds them, or that only one side has.

    Tensors that are spread over workers have a digest for every part. If they were divided into other parts when they were saved,
    digests say nothing about them; the checksums of files do.
    """
    names = [name for found in by_worker for name in found]
    own, other = _parts_by_name(names), _parts_by_name(recorded)
    redivided = {name for name in own.keys() & other.keys() if own[name] != other[name]}
    compared = [name for name in dict.fromkeys(names + sorted(recorded)) if name_of(name) not in redivided]
    return [name for name in compared if {found[name] for found in by_worker if name in found} != {recorded.get(name)}]


def _parts_by_name(parts: Iterable[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for part in parts:
        found.setdefault(name_of(part), set()).add(part)
    return found


def _saved(directory: RunDirectory) -> list[tuple[int, str]]:
    """Saved steps in order, with their files' names. Drafts of a killed worker are ignored."""
    found = (re.fullmatch(r"step-(\d+)\.json", base) for base in directory.names(DIGEST_LOG))
    return sorted((int(match[1]), f"{DIGEST_LOG}/{match[0]}") for match in found if match)


def machine_of(device: torch.device) -> str:
    """The processor model and the version of torch: besides dataset and config, the bits of a model depend on them."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    known = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*:\s*(.+)$", known.read_text(), re.MULTILINE) if known.exists() else []
    return f"{models[0] if models else platform.machine()}, torch {torch.__version__}"
