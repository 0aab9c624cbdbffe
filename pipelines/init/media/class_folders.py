"""Files with classes, whether images, recordings or texts: their classes and splits by folders or names, and the parts of a config that
all of them share."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.config.messages.words import name_list, show_count, verb_for
from pipelines.data.sources.spark_sql import sql_text
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, KeyPath, Request
from pipelines.init.media.folder_contents import FolderContents, FoundFile, SampledFiles
from pipelines.init.tables.target import FEW_ROWS

SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "t10k", "eval"), "test"),
}
"""Names of splits as folders and files have them, and those of a dataset."""
LISTED_CLASSES = 20
"""The most classes that an expectation lists."""
LEAST_ROWS = 20
"""Files or lines that fill three splits."""
EPOCHS = ((100_000, 5), (10_000, 10), (1_000, 20), (0, 40))
"""Least rows of the training split, and the epochs for that many."""


@dataclass(frozen=True)
class Classes:
    """How a query gets the class of a file, and its split if folders have the names of splits."""

    expression: str
    """SQL for the class, over `path` and `folders`, its parts."""
    reason: str
    counts: Counter[str]
    """Files of each class."""
    split_expression: str = ""
    splits: tuple[str, ...] = ()
    train_files: int = 0
    """Files of the folders for training, if there are such folders."""
    outside: tuple[str, ...] = ()
    """Files that lie in no folder of a class."""
    assumptions: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        return sum(self.counts.values())

    @property
    def is_complete(self) -> bool:
        """Whether an expectation can list all classes."""
        return len(self.counts) <= LISTED_CLASSES


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


def split_in_name(name: str) -> tuple[str, str]:
    """A name with `*` in place of the first word that names a split, and the split; the name itself and an empty text if it has none."""
    words = re.split("([^A-Za-z0-9]+)", name)
    place = next((number for number, word in enumerate(words) if word.lower() in SPLITS), None)
    return (name, "") if place is None else ("".join([*words[:place], "*", *words[place + 1 :]]), SPLITS[words[place].lower()])


def folder_splits(names: Sequence[str]) -> dict[str, str]:
    """The split of each folder, if their names differ in nothing else: train and test, or NAME-train and NAME-test. Empty if they do."""
    splits = {name: split_in_name(name) for name in names}
    are_different = len({split for _, split in splits.values()} - {""}) == len(names) > 1
    is_one_set = len({stem for stem, _ in splits.values()}) == 1
    by_folder = {name: split for name, (_, split) in splits.items()}
    return by_folder if are_different and is_one_set and "train" in by_folder.values() else {}


def find_classes(path: str, files: Sequence[FoundFile]) -> Classes:
    """The classes of the files. Raises ConfigError if there are none, one only, or one that has a single file."""
    depths = Counter(len(file.folders) for file in files)
    depth = max(depths, key=lambda number: (depths[number], number))
    inside = [file for file in files if len(file.folders) == depth]
    outside = tuple(file.name for file in files if len(file.folders) != depth)
    if len(outside) > len(files) / 20:
        counts = name_list([f"{show_count(count, 'file')} {show_count(number, 'folder')} deep" for number, count in sorted(depths.items())])
        raise ConfigError(f"{path}: {counts}; move them so that each class is a folder, and all of these lie equally deep")
    classes = _folder_classes(inside, depth, outside) or _name_classes(inside, outside)
    if classes is None:
        names = sorted({file.folders[-1] for file in inside if file.folders})
        fault = f"one class only, the folder {names[0]}" if len(names) == 1 else "no class in the names of folders or files"
        raise ConfigError(f"{path}: {fault}; put the files of each class into a folder of its name")
    check_class_counts(path, classes.counts, "files")
    if outside and not classes.is_complete:
        raise ConfigError(f"{path}: {outside[0]} lies outside the folders of classes; move it into one of them, or away")
    return classes


def has_class_folders(files: Sequence[FoundFile]) -> bool:
    """Whether nearly all files lie equally deep in folders that differ, most of which have two files or more."""
    depths = Counter(len(file.folders) for file in files)
    depth, number = depths.most_common(1)[0]
    if number < 0.95 * len(files):
        return False
    classes = _folder_classes([file for file in files if len(file.folders) == depth], depth, ())
    return classes is not None and 2 * sum(count > 1 for count in classes.counts.values()) > len(classes.counts)


def refuse_target(request: Request, place: str) -> None:
    """Raise ConfigError if a target is named for data that are no table."""
    if request.target:
        raise ConfigError(f"--target is {request.target}, but {request.data} is no table: the class is {place}; leave --target out")


def check_class_counts(path: str, counts: Counter[str], unit: str) -> None:
    """Raise ConfigError if there is a single class, a class of a single row, or too few rows to split."""
    if len(counts) < 2:
        raise ConfigError(f"{path}: one class only, {next(iter(counts), '')}; name data that have two classes or more")
    if single := sorted(name for name, count in counts.items() if count == 1):
        besides = f" and {len(single) - 1:,} more" if len(single) > 1 else ""
        raise ConfigError(
            f"{path}: class {single[0]}{besides} has 1 of the {unit}; a class needs at least two, to learn from and to test: "
            "add some, or remove the class"
        )
    if sum(counts.values()) < LEAST_ROWS:
        raise ConfigError(f"{path}: {sum(counts.values())} {unit} are too few to split; add some, until there are {LEAST_ROWS}")


def split_setting(splits: Sequence[str], train_rows: int, column: str, counts: Counter[str]) -> dict[str, Any]:
    """`dataset.split`: by the column `split` where there is one, else by a hash, in strata of the classes' `column` if one has few rows."""
    if not splits:
        stratify = {"stratify": column} if min(counts.values()) < FEW_ROWS else {}
        return {"train": 0.8, "validation": 0.1, "test": 0.1, **stratify}
    return {"by": "split"} if "validation" in splits else {"by": "split", "validation": 0.05 if train_rows >= 50_000 else 0.1}


def split_reason(splits: Sequence[str], counts: Counter[str]) -> str:
    if not splits:
        least = min(counts, key=lambda name: (counts[name], name))
        return f"{least} has {show_count(counts[least], 'row')} only" if counts[least] < FEW_ROWS else "by a hash of the row"
    return f"as the data have it: {name_list(list(splits))}" + ("" if "validation" in splits else "; a share of train selects the epoch")


def list_values(names: Iterable[str]) -> str:
    return ", ".join(map(sql_text, sorted(names)))


def _folder_classes(files: Sequence[FoundFile], depth: int, outside: tuple[str, ...]) -> Classes | None:
    """Classes by the deepest folders that differ, and splits by folders with the names of splits."""
    names = [sorted({file.folders[level] for file in files}) for level in range(depth)]
    split_level = next((level for level in range(depth) if folder_splits(names[level])), None)
    levels = [level for level in range(depth) if level != split_level and len(names[level]) > 1]
    if not levels:
        return None
    level = levels[-1]
    _refuse_masks(files, level, names[level])
    assumptions = [
        f"the class is the folder nearest to the file ({name_list(names[level][:3])}), not {name_list(names[number][:3])}"
        for number in levels[:-1]
    ]
    split_expression, train_files = "", 0
    splits: tuple[str, ...] = ()
    if split_level is not None:
        split_by_folder = folder_splits(names[split_level])
        split_expression = f"element_at(folders, {split_level - depth - 1})"
        if any(split != name for name, split in split_by_folder.items()):
            cases = " ".join(f"WHEN {sql_text(name)} THEN {sql_text(split)}" for name, split in split_by_folder.items())
            split_expression = f"CASE {split_expression} {cases} END"
        splits = tuple(split for split in ("train", "validation", "test") if split in split_by_folder.values())
        train_files = sum(split_by_folder[file.folders[split_level]] == "train" for file in files)
    counts = Counter(file.folders[level] for file in files)
    expression, reason = f"element_at(folders, {level - depth - 1})", "the folder of a file"
    return Classes(expression, reason, counts, split_expression, splits, train_files, outside, tuple(assumptions))


def _name_classes(files: Sequence[FoundFile], outside: tuple[str, ...]) -> Classes | None:
    """Classes by the beginning of names, up to the first `_`, `-` or `.` where all have as many of them, else up to a number."""
    starts = [re.sub(r"[_. -]?[0-9]+$", "", file.stem) for file in files]
    for separator, literal in (("_", "_"), ("-", "-"), (".", "\\\\.")):
        parts = [start.split(separator) for start in starts]
        counts = Counter(words[0] for words in parts)
        if len({len(words) for words in parts}) != 1 or len(parts[0]) == 1 or not 1 < len(counts) <= len(files) / 2:
            continue
        later_parts = [sorted({words[number] for words in parts}) for number in range(1, len(parts[0]))]
        assumptions = [f"the class is the first part of a file's name, with {len(counts)} values ({name_list(sorted(counts)[:3])})"]
        assumptions += [
            f"another part of the names has {len(values)} values ({name_list(values[:3])}); if those are people or devices, each stands in "
            "several splits, and the test does not tell how well new ones do: that needs dataset.split.group"
            for values in later_parts
            if 1 < len(values) < len(files) / 2
        ]
        expression = f"regexp_extract(path, '([^/{literal}]+){literal}[^/]*$', 1)"
        return Classes(expression, f"the file's name, up to the first {separator}", counts, outside=outside, assumptions=tuple(assumptions))
    counts = Counter(starts)
    if not all(starts) or not 1 < len(counts) <= len(files) / 2:
        return None
    expression = "regexp_extract(path, '([^/]+?)[_. -]?[0-9]+\\\\.[^./]*$', 1)"
    return Classes(expression, "the file's name, without the number at its end", counts, outside=outside)


def _refuse_masks(files: Sequence[FoundFile], level: int, names: Sequence[str]) -> None:
    """Raise ConfigError if the folders hold files of equal names, one of them masks or labels of the others."""
    mask = next((name for name in names if re.search("mask|label|annotation|segment", name.lower())), "")
    if mask and len(names) == 2:
        stems = [{file.stem for file in files if file.folders[level] == name} for name in names]
        if len(stems[0] & stems[1]) > min(map(len, stems)) / 2:
            raise ConfigError(
                f"the folders {names[0]} and {names[1]} have files of equal names, so {mask} holds masks or boxes, not a class; for masks "
                "docs/how-to/segmentation.md has a config, and docs/how-to/detection.md for boxes"
            )


def draft_files(
    request: Request, contents: FolderContents, classes: Classes, table: SampledFiles, content: str, learning: Learning
) -> Draft:
    """The draft for files whose class stands in their path. `content` is SQL for what the encoder reads."""
    refuse_target(request, classes.reason)
    source: dict[str, Any] = {"tables": {"files": table.settings}, "query": _query(classes, table.condition, content, learning.feature)}
    if classes.is_complete and not classes.outside and not table.assumptions:
        source["expect"] = {"a known class": f"class IN ({list_values(classes.counts)})"}
    rows = train_rows(classes.train_files or classes.files, classes.splits)
    files, trained = (show_count(count, learning.noun) for count in (classes.files, rows))
    comments: dict[KeyPath, str] = {
        ("dataset", "split"): split_reason(classes.splits, classes.counts),
        ("dataset", "features", learning.feature): learning.encoder_reason,
        ("dataset", "target"): f"{len(classes.counts):,} classes",
        ("source", "query"): f"The class is {classes.reason}.",
        ("train",): f"about {trained} for training",
    }
    if learning.unreadable_share > 0.01:
        source["max_quarantined"] = round(min(2 * learning.unreadable_share, 1.0), 2)
        comments["source", "max_quarantined"] = f"{learning.unreadable_share:.0%} of the {learning.noun}s that were tried cannot be read"
    examples = ", ".join(f"{name} ({count:,})" for name, count in classes.counts.most_common(5))
    more = ", …" if len(classes.counts) > 5 else ""
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
        introduction=(f"{files} of {len(classes.counts):,} classes: {examples}{more}.",),
        comments=comments,
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
