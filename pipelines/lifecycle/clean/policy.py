"""Says of each version why it stays. Every rule is a function of plain values that maps versions to reasons."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from pipelines.config.dataset.dataset import Keep
from pipelines.config.messages.words import show_count
from pipelines.lifecycle.clean.stored_versions import StoredVersion
from pipelines.tracking.dataset_readers import DatasetUse

_DAY_SECONDS = 24 * 3600
Reasons = Mapping[str, str]
"""By the folder of a version that stays, the reason."""


def reasons_by_policy(stored: Sequence[StoredVersion], keep: Keep) -> Reasons:
    """The versions that `dataset.keep` keeps, the newest of each config, and those that cannot be read. The newest is the one that ETL made
    or confirmed last."""
    reasons = {version.name: version.fault for version in stored if version.fault}
    dated = sorted((version for version in stored if version.manifest and not version.fault), key=lambda version: -version.confirmed)
    for place, version in enumerate(dated):
        if place < keep.versions:
            reasons[version.name] = f"it is among the newest {keep.versions}" if keep.versions > 1 else "it is the newest"
        elif time.time() - version.confirmed <= keep.days * _DAY_SECONDS:
            reasons[version.name] = f"it is not older than {_days(keep)}"
    configs = set[str]()
    for version in dated:
        identity = json.dumps(version.manifest.identity if version.manifest else None, sort_keys=True)
        if identity not in configs:
            reasons.setdefault(version.name, "it is the newest of its source and dataset settings")
        configs.add(identity)
    return reasons


def reasons_by_use(stored: Sequence[StoredVersion], use: DatasetUse, unknown_runs: set[str]) -> Reasons:
    """The versions that a registered model was trained on, that a run reads, that a statement names, or whose users nobody knows."""
    reasons: dict[str, str] = {}
    for version in stored:
        if version.manifest is not None and (reason := next(_uses(version, use, unknown_runs), "")):
            reasons[version.name] = reason
    return reasons


def _uses(version: StoredVersion, use: DatasetUse, unknown_runs: set[str]) -> Iterator[str]:
    manifest = version.manifest
    assert manifest is not None, "only versions with a manifest have users"
    for reader in use.readers:
        if (reader.version and reader.version in (manifest.version, version.name)) or reader.digest in manifest.digests:
            yield reader.text
    yield from (f"the statement {path} names it" for path in version.attestations)
    yield from use.blockers
    if manifest.run_id in unknown_runs:
        yield f"tracking.uri does not have run {manifest.run_id}, which made it, so that nobody can say which models were trained on it"


def reasons_by_reference(stored: Sequence[StoredVersion], reasons: Reasons) -> Reasons:
    """The versions to whose parts a version that stays refers, or which are its parent; and theirs in turn. A running ETL's index refers to
    parts as well. Where an index cannot be read, its version may refer to any other."""
    needed_by: dict[str, str] = {}
    live = [version.name for version in stored if not version.is_version and version.part_folders]
    by_name = {version.name: version for version in stored}
    waiting = [*reasons, *live]
    while waiting:
        version = by_name[waiting.pop()]
        for name, text in _needs(version, by_name):
            if name not in reasons and name not in needed_by:
                needed_by[name] = text
                waiting.append(name)
    return needed_by


def _needs(version: StoredVersion, by_name: Mapping[str, StoredVersion]) -> Iterator[tuple[str, str]]:
    for name in {folder.version for folder in version.part_folders if folder.version} & by_name.keys():
        yield name, f"version {version.name} shares its parts"
    parent = version.manifest.parent if version.manifest else ""
    for other in by_name.values() if parent else ():
        if parent in (other.name, other.manifest.version if other.manifest else ""):
            yield other.name, f"it is the parent of version {version.name}"
    if version.index_fault:
        yield from (
            (name, f"version {version.name} may share its parts: {version.index_fault}") for name in by_name if name != version.name
        )


def order_removals(leaving: Sequence[StoredVersion]) -> list[StoredVersion]:
    """The versions so that each comes before those that it refers to: an interruption leaves none without its parts."""
    ordered: list[StoredVersion] = []
    pending = {version.name: version for version in leaving}
    while pending:
        needed = {name for version in pending.values() for name, _ in _needs(version, pending) if name != version.name}
        free = [version for name, version in pending.items() if name not in needed] or list(pending.values())
        ordered += free
        for version in free:
            del pending[version.name]
    return ordered


def removal_reason(version: StoredVersion, keep: Keep) -> str:
    confirmed = datetime.fromtimestamp(version.confirmed, UTC)
    return f"it is of {confirmed:%Y-%m-%d}, older than {_days(keep)}, and not among the newest {keep.versions}"


def _days(keep: Keep) -> str:
    return show_count(f"{keep.days:g}", "day")
