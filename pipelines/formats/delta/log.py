"""The log of a Delta table, as its protocol describes it: each commit is a file of JSON, with an action on each line.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md"""

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

from pyarrow.fs import FileInfo

from pipelines.data.sources.files.content import file_errors, open_file
from pipelines.errors import SourceError
from pipelines.formats.delta.place import LOG, Place
from pipelines.formats.delta.settings import parse_moment

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
        """When a version was committed: what its commit says itself, in a table with `inCommitTimestamp`, or else when the file was
        written."""
        milliseconds = commit_info(self.actions(version)).get("inCommitTimestamp")
        return self._write_time(version) if milliseconds is None else datetime.fromtimestamp(milliseconds / 1_000, UTC)

    def moments(self, versions: Sequence[int]) -> list[datetime]:
        """When these versions were committed, if commits do not say it: a file may have been written before that of the version before."""
        written = (self._write_time(version) for version in versions)
        return list(accumulate(written, lambda earlier, moment: max(moment, earlier + timedelta(milliseconds=1))))

    def _write_time(self, version: int) -> datetime:
        modified = self.commits[version].mtime
        return modified if modified.tzinfo else modified.replace(tzinfo=UTC)


def version_at(log: Log, timestamp: str) -> int:
    """The number of the version that was the latest at this moment. Delta-rs takes the first one for a moment before all versions, and does
    not know the moments that commits say. Raises SourceError if there was none, or if more may come."""
    moment, place = parse_moment(timestamp), log.place.path
    if moment > datetime.now(UTC):
        raise SourceError(
            f"{place}: timestamp {timestamp} is in the future, when later versions may exist; leave it out for the latest one"
        )
    versions = sorted(version for version in log.commits if version >= log.first)
    if "inCommitTimestamp" in commit_info(log.actions(versions[-1])):
        count = bisect_right(versions, moment, key=log.moment)
    else:
        count = bisect_right(log.moments(versions), moment)
    if not count:
        first_moment = log.moment(versions[0]).isoformat(timespec="milliseconds")
        raise SourceError(
            f"{place} has no version at {timestamp}: the earliest that its log still has, {versions[0]}, is of {first_moment}; give a "
            f"later timestamp, or version: {versions[0]}"
        )
    return versions[count - 1]


def list_log(place: Place) -> Log | None:
    """The log of the table; None if there is no table."""
    names = {entry.base_name: entry for entry in place.log_entries()}
    commits = {int(match[1]): entry for name, entry in names.items() if (match := _COMMIT.fullmatch(name))}
    checkpoints = frozenset(int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name)))
    return Log(place, commits, checkpoints) if commits or checkpoints else None


def commit_info(actions: Actions) -> dict[str, Any]:
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
