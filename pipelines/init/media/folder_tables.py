"""The parts of a config that files in class folders have in common, images, recordings and texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.config.messages.counting import name_list, show_count, verb_for
from pipelines.init.draft import Draft, KeyPath, Request
from pipelines.init.media.classes import Classes, list_values, refuse_target, split_reason, split_setting
from pipelines.init.media.contents import FolderContents
from pipelines.init.media.file_table import SampledFiles

EPOCHS = ((100_000, 5), (10_000, 10), (1_000, 20), (0, 40))
"""Least rows of the training split, and the epochs for that many."""


@dataclass(frozen=True)
class Learning:
    """The feature of the model, and its training."""

    noun: str
    """What a row is, in the singular."""
    feature: str
    encoder: Mapping[str, Any]
    encoder_reason: str
    task: Mapping[str, Any]
    train: Mapping[str, Any]
    unreadable_share: float = 0.0
    """Share of the sample that the encoder refuses."""
    assumptions: tuple[str, ...] = ()


def draft_files(
    request: Request,
    contents: FolderContents,
    classes: Classes,
    table: SampledFiles,
    content: str,
    learning: Learning,
) -> Draft:
    """The draft for files whose class stands in their path. `content` is SQL for what the encoder reads."""
    refuse_target(request, classes.reason)
    source: dict[str, Any] = {"tables": {"files": table.settings}, "query": _query(classes, table.condition, content, learning.feature)}
    if classes.is_complete and not classes.outside and not table.assumptions:
        source["expect"] = {"a known class": f"class IN ({list_values(classes.counts)})"}
    if learning.unreadable_share > 0.01:
        source["max_quarantined"] = round(min(2 * learning.unreadable_share, 1.0), 2)
    rows = train_rows(classes.train_files or classes.files, classes.splits)
    files, trained = (show_count(count, learning.noun) for count in (classes.files, rows))
    comments: dict[KeyPath, str] = {
        ("dataset", "split"): split_reason(classes.splits, classes.counts),
        ("dataset", "features", learning.feature): learning.encoder_reason,
        ("dataset", "target"): f"{len(classes.counts):,} classes",
        ("source", "query"): f"The class is {classes.reason}.",
        ("train",): f"about {trained} for training",
    }
    if "max_quarantined" in source:
        comments["source", "max_quarantined"] = f"{learning.unreadable_share:.0%} of the {learning.noun}s that were tried cannot be read"
    return Draft(
        sections={
            "name": request.name,
            "source": source,
            "dataset": {
                "path": f"data/{request.name}",
                "split": split_setting(classes.splits, classes.train_files, "class", classes.counts),
                "features": {learning.feature: learning.encoder},
                "target": {"class": "label"},
            },
            "task": learning.task,
            "train": learning.train,
        },
        introduction=(f"{files} of {len(classes.counts):,} classes: {_shown_classes(classes)}.",),
        comments={path: comment for path, comment in comments.items() if comment},
        assumptions=(*classes.assumptions, *table.assumptions, *_doubts(contents, classes), *learning.assumptions),
    )


def train_rows(rows: int, splits: tuple[str, ...]) -> int:
    """The rows of the training split, about: `rows` are those of the train folder if there are folders of splits, else all."""
    return rows * (10 if "validation" in splits else 9 if splits else 8) // 10


def batch_rows(rows: int, most: int = 64) -> int:
    """Rows of a step: at most `most`, and few enough for eight steps in an epoch. A power of two from 8 on, which eight shards divide."""
    batch = most
    while batch > 8 and rows < 8 * batch:
        batch //= 2
    return batch


def epochs_for(rows: int, table: tuple[tuple[int, int], ...] = EPOCHS) -> int:
    """Epochs by the rows of the training split: the fewer rows, the more."""
    return next(epochs for least, epochs in table if rows >= least)


def _query(classes: Classes, condition: str, content: str, feature: str) -> str:
    where = condition and f" WHERE {condition}"
    split = f", {classes.split_expression} AS split" if classes.split_expression else ""
    columns = f"{content} AS {feature}, {classes.expression} AS class{split}"
    uses_folders = "folders" in classes.expression + split
    rows = f"(SELECT *, split(path, '/') AS folders FROM files{where})" if uses_folders else f"files{where}"
    if not classes.outside:
        return f"SELECT {columns}\nFROM {rows}"
    return f"SELECT * FROM (SELECT {columns}\nFROM {rows})\nWHERE class IN ({list_values(classes.counts)})"


def _shown_classes(classes: Classes) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in classes.counts.most_common(5)) + (", …" if len(classes.counts) > 5 else "")


def _doubts(contents: FolderContents, classes: Classes) -> list[str]:
    few = sorted(name for name, count in classes.counts.items() if count < 10) if classes.splits else []
    doubts = []
    if few:
        doubts.append(f"{name_list(few[:3])} {verb_for(len(few), 'has', 'have')} fewer than 10 files: a split may have none of them")
    if classes.outside:
        count = len(classes.outside)
        files = f"{show_count(count, 'file')} outside the folders of classes"
        doubts.append(f"{files} {verb_for(count)} left out, such as {classes.outside[0]}")
    if contents.about:
        doubts.append(f"{contents.about[0]} is about the data, and left out")
    return doubts
