"""What a run was, step by step, in so few bytes that all of it is kept: what a verification compares itself with.

trail/step-000001200.json    beside a checkpoint, and not pruned: digests of model and optimizer, losses since the last
"""

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from pipelines.checkpoint.run_directory import Folder

TRAIL = "trail"


@dataclass
class Trail:
    losses: dict[int, float] = field(default_factory=dict)
    """Loss sum of the global batch, by step, counted from 1: of weights before the step."""
    digests: dict[int, dict[str, str]] = field(default_factory=dict)
    """Of every tensor by name, after the steps that were saved."""
    machine: str = ""
    """What it was trained on."""


def leave(folder: Folder, step: int, digests: Mapping[str, str], losses: Sequence[float], machine: str) -> None:
    """Add a saved step, whose `losses` are those of the steps up to it."""
    folder.put_json(f"{TRAIL}/step-{step:09d}.json", {"step": step, "machine": machine, "losses": losses, "digests": digests})


def forget(folder: Folder, step: int) -> None:
    """Remove what was saved after `step`: the run went back to it, and does again what came later."""
    for saved, name in _saved(folder):
        if saved > step:
            folder.remove(name)


def follow(folder: Folder) -> Trail:
    """Everything that a run left; empty if it left nothing."""
    trail = Trail()
    for step, name in _saved(folder):
        if (values := folder.get_json(name)) is not None:
            losses = values["losses"]
            trail.losses.update(zip(range(step - len(losses) + 1, step + 1), losses, strict=True))
            trail.digests[step] = values["digests"]
            trail.machine = values["machine"]
    return trail


def _saved(folder: Folder) -> list[tuple[int, str]]:
    """Saved steps in order, and their files' names; a file that a killed worker was writing is none."""
    found = (re.fullmatch(r"step-(\d+)\.json", base) for base in folder.names(TRAIL))
    return sorted((int(match[1]), f"{TRAIL}/{match[0]}") for match in found if match)


def machine_of(device: torch.device) -> str:
    """What bits depend on beside dataset and config: the kind of processor, and torch."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    known = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*:\s*(.+)$", known.read_text(), re.MULTILINE) if known.exists() else []
    return f"{models[0] if models else platform.machine()}, torch {torch.__version__}"
