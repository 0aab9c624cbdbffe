"""Drafts the config for files with a label and a sentence in each line."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.config.messages.counting import name_list, show_count
from pipelines.init.draft import Draft, KeyPath, Request
from pipelines.init.media.classes import (
    LISTED_CLASSES,
    check_class_counts,
    list_values,
    refuse_target,
    split_reason,
    split_setting,
)
from pipelines.init.media.contents import TABLES, FolderContents, FoundFile, list_contents
from pipelines.init.media.folder_tables import train_rows
from pipelines.init.media.text_files import Beginning, check_lines, choose_group, group_by_split, is_tabular, read_beginning
from pipelines.init.media.texts import term_encoder, text_training, word_encoder

MOST_LABELS = 200


@dataclass(frozen=True)
class LabelPlace:
    """How a line holds its label."""

    pattern: re.Pattern[str]
    """With groups `label` and `text`."""
    label: str
    """SQL for it."""
    text: str
    reason: str


PLACES = (
    LabelPlace(
        re.compile(r"(?P<label>[^\t]{1,40})\t(?P<text>[^\t]+)"),
        "substring_index(value, '\\t', 1)",
        "substring(value, instr(value, '\\t') + 1)",
        "A line is a label, a tab, and the sentence.",
    ),
    LabelPlace(
        re.compile(r"(?P<text>[^\t]+)\t(?P<label>[^\t]{1,40})"),
        "substring_index(value, '\\t', -1)",
        "substring_index(value, '\\t', 1)",
        "A line is a sentence, a tab, and its label.",
    ),
    LabelPlace(
        re.compile(r"(?P<label>\S{1,40}) (?P<text>.+)"),
        "substring_index(value, ' ', 1)",
        "substring(value, instr(value, ' ') + 1)",
        "A line is a label, a space, and the sentence.",
    ),
)


def draft_sentences(request: Request) -> Draft | None:
    """Draft the config for lines of a label and a sentence. None if no file has such lines."""
    contents = list_contents(request.data)
    files = _files_of_set(contents) if contents.is_file else contents.files
    if any(file.ending in TABLES for file in files):
        return None
    beginnings = {file: read_beginning(contents.place(file), file.bytes, 2**20) for file in files[:20]}
    places = {file: _label_place(beginning) for file, beginning in beginnings.items() if beginning}
    if len(places) < len(files) or not all(places.values()):
        return None
    group = choose_group(contents, files)
    texts = {split: read_beginning(contents.place(file), file.bytes) for split, file in group.items()}
    for split, text in texts.items():
        if text:
            check_lines(contents.place(group[split]), text)
    place = next(iter(places.values()))
    assert place is not None, "checked above"
    return _draft(request, contents, group, {split: text for split, text in texts.items() if text}, place)


def _draft(
    request: Request, contents: FolderContents, group: Mapping[str, FoundFile], texts: Mapping[str, Beginning], place: LabelPlace
) -> Draft:
    matches = {split: [match for line in text.lines if (match := place.pattern.fullmatch(line))] for split, text in texts.items()}
    counts = {split: Counter(match["label"] for match in lines) for split, lines in matches.items()}
    classes = sum(counts.values(), Counter[str]())
    refuse_target(request, "the label of a line")
    check_class_counts(request.data, classes, "lines")
    splits = tuple(split for split in group if split)
    first = next(iter(group))
    estimated = round(counts[first].total() * texts[first].bytes / max(len(texts[first].text), 1)) if not texts[first].is_whole else 0
    rows = train_rows(max(counts[first].total(), estimated), splits)
    sentences = [match["text"] for lines in matches.values() for match in lines]
    encoder, encoder_reason = term_encoder(sentences)
    in_order = word_encoder(sentences)
    order = {"words": {**in_order, "column": "sentence"}} if in_order else {}
    are_numbers = all(re.fullmatch("-?[0-9]{1,9}", label) for label in classes)
    is_binary = set(classes) == {"0", "1"}
    tables = {split or "lines": _table(contents.place(file), texts[split]) for split, file in group.items()}
    source: dict[str, Any] = {
        "tables": tables,
        "query": _query(splits, place, are_numbers, any("" in text.lines for text in texts.values())),
    }
    if len(classes) <= LISTED_CLASSES and all(text.is_whole for text in texts.values()):
        labels = ", ".join(sorted(classes, key=int)) if are_numbers else list_values(classes)
        source["expect"] = {"a known label": f"label IN ({labels})"}
    comments: dict[KeyPath, str] = {
        ("source", "query"): place.reason,
        ("dataset", "split"): split_reason(splits, classes),
        ("dataset", "features", "sentence"): encoder_reason,
        ("dataset", "target"): name_list([f"{label} {count:,} times" for label, count in classes.most_common(3)]),
        ("train",): f"about {show_count(rows, 'sentence')} for training",
    }
    dataset = {
        "path": f"data/{request.name}",
        "split": split_setting(splits, counts[first].total(), "label", classes),
        "features": {"sentence": encoder, **order},
        "target": {"label": "binary" if is_binary else "label"},
    }
    return Draft(
        {
            "name": request.name,
            "source": source,
            "dataset": dataset,
            "task": {"kind": "text"},
            "train": text_training(rows),
        },
        (f"Sentences of {len(classes)} classes: {name_list([f'{count.total():,} {split}'.strip() for split, count in counts.items()])}.",),
        {path: comment for path, comment in comments.items() if comment},
        tuple(_doubts(texts, group)),
    )


def _files_of_set(contents: FolderContents) -> tuple[FoundFile, ...]:
    """The file, and those beside it whose names have the words of other splits."""
    file = contents.files[0]
    neighbours = [FoundFile(path.name, path.stat().st_size) for path in sorted(Path(contents.root).iterdir()) if path.is_file()]
    groups = group_by_split([other for other in neighbours if not other.name.startswith((".", "_"))])
    group = next((group for group in groups.values() if file in group.values()), {"": file})
    return tuple(group.values()) if group.get("train") == file else (file,)


def _label_place(beginning: Beginning) -> LabelPlace | None:
    """The place of the label in nearly all lines; None if there is none that few labels fill."""
    lines = [line for line in beginning.lines if line.strip()]
    for place in PLACES if not is_tabular([line.replace("\t", " ", 1) for line in lines]) else ():
        matches = [match for line in lines if (match := place.pattern.fullmatch(line))]
        labels = Counter(match["label"] for match in matches)
        have_words = sum(bool(re.search(r"[^\W\d]{2}.*\s", match["text"])) for match in matches)
        if len(matches) >= 0.99 * len(lines) > 0 and _are_labels(labels) and have_words > 0.8 * len(lines):
            return place
    return None


def _are_labels(counts: Counter[str]) -> bool:
    """Whether the first or last words of lines are labels: few, most of them repeated; a single one only if no other word looks so."""
    repeated = sum(count > 1 for count in counts.values())
    if len(counts) == 1:
        return bool(re.fullmatch("-?[0-9]+|__label__.*", next(iter(counts))))
    return len(counts) <= min(MOST_LABELS, counts.total() / 10) and 2 * repeated > len(counts)


def _table(path: str, beginning: Beginning) -> dict[str, Any]:
    table: dict[str, Any] = {"format": "text", "path": path}
    return {**table, "options": beginning.options} if beginning.options else table


def _query(splits: Sequence[str], place: LabelPlace, are_numbers: bool, has_blank_lines: bool) -> str:
    label = f"try_cast({place.label} AS int)" if are_numbers else place.label
    where = "\nWHERE trim(value) <> ''" if has_blank_lines else ""
    if not splits:
        return f"SELECT {label} AS label, {place.text} AS sentence FROM lines{where}"
    rows = "\n  UNION ALL ".join(f"SELECT value, '{split}' AS split FROM {split}" for split in splits)
    return f"SELECT {label} AS label, {place.text} AS sentence, split\nFROM (\n  {rows}\n){where}"


def _doubts(texts: Mapping[str, Beginning], group: Mapping[str, FoundFile]) -> list[str]:
    doubts = [f"{group[split].name} is not UTF-8: {text.encoding} is assumed" for split, text in texts.items() if text.encoding]
    if not all(text.is_whole for text in texts.values()):
        doubts.append("labels and lengths are those of the first 32 MB of each file")
    return doubts
