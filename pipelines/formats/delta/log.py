"""The log of a Delta table, as its protocol describes it: each commit is a file of JSON, with an action on each line.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyarrow.fs import FileInfo

from pipelines.data.sources.files.content import file_errors, open_file
from pipelines.formats.delta.place import LOG, Place

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*")
Actions = list[dict[str, Any]]
"""Of a commit, in its order: each has one key, such as `add`."""


@dataclass(frozen=True)
class Log:
    """The files of a log when it was listed."""

    place: Place
    commits: dict[int, FileInfo]
    """By version. Older ones may be removed once a checkpoint stands for them."""
    checkpoints: frozenset[int]

    @property
    def first(self) -> int:
        """The earliest version that can be read."""
        complete = [version for version in (*self.checkpoints, *self.commits) if version in self.checkpoints or version == 0]
        return min(complete, default=0)

    @property
    def last(self) -> int:
        return max([*self.commits, *self.checkpoints])

    def actions(self, version: int) -> Actions:
        """The actions of a commit. Raises SourceError if it cannot be read."""
        path = self.place.file(f"{LOG}/{version:020d}.json")
        with file_errors(path), open_file(path) as stream:
            return [json.loads(line) for line in stream.read().splitlines() if line.strip()]

    def moment(self, version: int) -> datetime:
        """When a version was committed: what the commit says itself, where its table has `inCommitTimestamp`, or else when its file was
        written."""
        milliseconds = commit_info(self.actions(version)).get("inCommitTimestamp")
        if milliseconds is not None:
            return datetime.fromtimestamp(milliseconds / 1_000, UTC)
        modified = self.commits[version].mtime
        return modified if modified.tzinfo else modified.replace(tzinfo=UTC)


def list_log(place: Place) -> Log | None:
    """The log of the table; None if there is no table."""
    names = {entry.base_name: entry for entry in place.log_entries()}
    commits = {int(match[1]): entry for name, entry in names.items() if (match := _COMMIT.fullmatch(name))}
    checkpoints = frozenset(int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name)))
    return Log(place, commits, checkpoints) if commits or checkpoints else None


def commit_info(actions: Actions) -> dict[str, Any]:
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
