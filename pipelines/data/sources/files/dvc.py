"""Reads what DVC says of files that it tracks: their MD5, and the commit of Git in which it says so.

A file X.dvc, or dvc.lock for the outputs of stages, names files or folders with their MD5, as
https://dvc.org/doc/user-guide/project-structure/dvc-files describes it. Nothing of DVC needs to be installed.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_GIT_SECONDS = 10.0


@dataclass(frozen=True)
class DvcOutput:
    """A file or a folder that DVC tracks."""

    path: Path
    md5: str
    """That of a folder ends in `.dir`."""
    bytes: int | None
    """Of all its files; None if DVC does not say it."""
    record: Path
    """The file that says so: X.dvc or dvc.lock."""

    def note(self, place: Path, total_bytes: int | None) -> str:
        """A sentence about the files at `place`, which have so many bytes now, if that is known."""
        is_altered = place == self.path and None not in (self.bytes, total_bytes) and self.bytes != total_bytes
        altered = f", but they have {total_bytes:,} bytes by now and had {self.bytes:,}" if is_altered else ""
        return f"DVC has these files as {self.md5} in {self.record.name}{_show_commit(self.record)}{altered}"


def find_dvc_output(place: Path) -> DvcOutput | None:
    """The output of DVC that is at an absolute path, or that contains it; None if there is none."""
    folders = list(place.parents)
    depth = next((depth for depth, folder in enumerate(folders) if (folder / ".dvc").is_dir()), None)
    if depth is None:
        return None
    records = (record for folder in folders[: depth + 1] for record in [*sorted(folder.glob("?*.dvc")), folder / "dvc.lock"])
    outputs = (output for record in records if record.is_file() for output in _read_outputs(record))
    return next((output for output in outputs if output.path == place or output.path in place.parents), None)


def _read_outputs(record: Path) -> Iterator[DvcOutput]:
    """The outputs in X.dvc or dvc.lock; none of a file that is not as DVC writes it."""
    try:
        values = yaml.safe_load(record.read_bytes())
        stages = values["stages"].values() if record.name == "dvc.lock" else [values]
        outputs: list[dict[str, Any]] = [output for stage in stages for output in stage.get("outs", ())]
        yield from (
            DvcOutput((record.parent / output["path"]).resolve(), str(output["md5"]), output.get("size"), record)
            for output in outputs
            if "md5" in output
        )
    except (OSError, ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError):
        return


def _show_commit(record: Path) -> str:
    """The commit that has the file as it is; empty if Git has none."""
    commit = _git(record, "log", "-1", "--format=%H")
    if not commit:
        return ""
    is_committed = not _git(record, "status", "-s")
    return f" of commit {commit}" if is_committed else f", which is not committed as it is; the last commit of it is {commit}"


def _git(record: Path, command: str, *options: str) -> str:
    """The output of Git about a file; empty without Git, and outside of a checkout."""
    words = ["git", "-C", str(record.parent), command, *options, "--", record.name]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
