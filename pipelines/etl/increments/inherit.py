"""Takes over the rows of a parent: parts as they are, and parts that are written again without rows that newer ones replace."""

import copy
import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyarrow.fs import FileSystem
from pyspark.sql import SparkSession

from pipelines.data.sources.base import NoIncrementError, distribute
from pipelines.data.versions.commit import Attempt, Report
from pipelines.data.versions.manifest import SPLITS, tensor_columns
from pipelines.data.versions.merge_parts import Part, find_small_parts, merge_parts
from pipelines.data.versions.part_folders import path_in_dataset, path_in_version
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.rewrite import Removal, RewrittenPart, rewrite_part
from pipelines.data.versions.row_groups import collect_row_groups
from pipelines.data.versions.rows_digest import rows_sum
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import Version

REFIT_PSI, REFIT_MISSING = 0.25, 0.05
"""Population stability index, and difference of the shares of missing values, above which encoders are fitted anew; see `diff.drift`."""


def inherit(parent: Version, new_rows: Report, rewritten: list[RewrittenPart]) -> Report:
    """The report of a version, from that of the rows that came: the parent's row groups stand before theirs, whose parts are numbered after
    them, and what was counted of the parent's rows is added. `rewritten` parts stand in place of the parent's."""
    groups_by_part, inherited = parent.groups_by_part(), list[RowGroup]()
    row_groups_in_place: dict[str, list[RowGroup]] = {part.file: part.row_groups for part in rewritten}
    row_groups_in_place |= {file: [] for part in rewritten for file in part.merged}
    for file, groups in groups_by_part.items():
        shared = [replace(group, file=path_in_version("", path_in_dataset(parent.folder, file))) for group in groups]
        inherited += row_groups_in_place.get(file, shared)
    first = {split: 1 + max((group.part for group in parent.row_groups if group.split == split), default=-1) for split in SPLITS}
    numbered = [replace(group, part=first[group.split] + group.part) for group in new_rows.row_groups]
    report = copy.deepcopy(replace(new_rows, row_groups=[]))
    report.row_groups = [*inherited, *numbered]
    for split, summary in parent.manifest.splits.items():
        report.add_rows(split, rows_sum(summary.rows_digest))
    counts = {
        name: Counter(dict(enumerate(fitted.class_counts))) for name, fitted in parent.manifest.encoders.items() if fitted.class_counts
    }
    for part in rewritten:
        split = groups_by_part[part.file][0].split
        report.add_rows(split, -part.removed_sum)
        report.side_files += part.side_files
        for name, classes in part.removed_classes.items() if split == SPLITS[0] else ():
            counts[name].subtract(classes)
    for name, count in counts.items():
        report.count_classes(name, [count[number] for number in range(len(count))])
    return report


def check_fit(parent: Version, attempt: Attempt, report: Report) -> None:
    """Raises NoIncrementError, with the drift, if the rows that came are not distributed as the parent's encoders were fitted for."""
    from pipelines.diff.comparison import compare_columns  # noqa: PLC0415, SciPy takes time, and few ask for it
    from pipelines.diff.drift import Limits  # noqa: PLC0415

    groups = collect_row_groups(report.row_groups)
    if not groups.select_split(SPLITS[0]):
        return
    new_rows = Version(attempt.filesystem, attempt.root, parent.manifest.model_copy(update={"parent": parent.manifest.version}), groups)
    findings = compare_columns(parent, new_rows, Limits(psi=REFIT_PSI, missing=REFIT_MISSING)).findings
    if findings:
        raise NoIncrementError(f"dataset.refit is drift, and the rows that came have in {findings[0].column} {findings[0].text}")


def rewrite_parts(
    spark: SparkSession, parent: Version, removals: Sequence[Removal], attempt: Attempt, row_group_bytes: int
) -> list[RewrittenPart]:
    """Write the parts of the parent without the rows that leave, and many small parts as one, each in a task of Spark's."""
    encoders = parent.manifest.encoders
    columns, counted = tensor_columns(encoders), [name for name, fitted in encoders.items() if fitted.class_counts]
    changed = {removal.groups[0].file for removal in removals}
    unchanged = [groups for file, groups in parent.groups_by_part().items() if file not in changed]
    small = find_small_parts(unchanged, sum(column.row_bytes for column in columns), row_group_bytes)
    rewrite = partial(_rewrite, parent.filesystem, parent.root, attempt, columns, counted, row_group_bytes)
    work: list[Removal | list[Part]] = [*removals, *small]
    return [pickle.loads(row.part) for row in distribute(spark, work, rewrite, "part binary").collect()] if work else []


def _rewrite(
    filesystem: FileSystem,
    root: str,
    attempt: Attempt,
    columns: tuple[TensorColumn, ...],
    counted: list[str],
    row_group_bytes: int,
    work: Removal | list[Part],
) -> Iterator[pa.RecordBatch]:
    if isinstance(work, Removal):
        part = rewrite_part(filesystem, root, attempt, columns, counted, work)
    else:
        part = merge_parts(filesystem, root, attempt, columns, row_group_bytes, work)
    yield pa.RecordBatch.from_pydict({"part": [pickle.dumps(part)]})
