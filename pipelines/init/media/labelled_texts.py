"""Drafts the config for texts with classes: texts in class folders, and files with a label and a sentence in each line.

The model is a linear one of their terms, beside convolutions over the words of short texts. The figures of conf/trec.yaml,
conf/sst2.yaml and conf/mr.yaml decided it.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config.messages.words import name_list, show_count
from pipelines.data.features.raw import words
from pipelines.data.features.text_pieces import TermRule, split_terms
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, KeyPath, Request
from pipelines.init.media.class_folders import (
    LISTED_CLASSES,
    Learning,
    batch_rows,
    check_class_counts,
    draft_files,
    epochs_for,
    find_classes,
    has_class_folders,
    list_values,
    refuse_target,
    split_reason,
    split_setting,
    train_rows,
)
from pipelines.init.media.folder_contents import (
    DOCUMENTS,
    FolderContents,
    FoundFile,
    SampledFiles,
    check_kinds,
    is_file_type,
    list_contents,
    spread,
    table_endings,
)
from pipelines.init.media.text_files import Beginning, check_lines, choose_group, group_by_split, is_tabular, read_beginning, text_path

EPOCHS = ((6_000, 6), (1_000, 10), (0, 20))
"""Least texts for training, and the epochs for that many."""
SHORT = 64
"""If 95 % of the texts have at most so many words, runs of characters are terms too."""
LEAST_WORDS = 5
"""The widest filter of the network."""
LEAST_TERMS, MOST_TERMS = 16, 2_048
MOST_TEXTS = 2_000
"""The most texts whose terms are counted."""
MOST_FILES, MOST_BYTES = 500, 2**18
"""The most files that are opened, and the most bytes of each that are read."""
TYPE_FILES, TYPE_BYTES = 50, 2**14
"""The same, where the content decides whether files are texts."""
MOST_LABELS = 200
"""The most different beginnings or ends of lines that are labels."""
SEEN_FILES, SEEN_BYTES = 20, 2**20
"""The most files, and the most bytes of each, that show whether lines have labels."""


@dataclass(frozen=True)
class LabelPlace:
    """How a line holds its label."""

    pattern: re.Pattern[str]
    """With groups `label` and `text`."""
    label: str
    """SQL for it."""
    text: str
    reason: str


LABEL_PLACES = (
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


def term_encoder(texts: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The encoder `terms`, with the length that 95 % of the texts need, and its reason."""
    sample = pa.array(texts[:: -(-len(texts) // MOST_TEXTS)], pa.string())
    usual_words = _usual(pc.list_value_length(words(sample)).to_numpy())
    characters = [3, 4, 5] if usual_words <= SHORT else []
    counts = np.zeros(len(sample), np.int64)
    for start, terms, rows in split_terms(sample, TermRule((1, 2), tuple(characters), lowercase=True)):
        distinct = terms.dictionary_encode()
        size = max(len(distinct.dictionary), 1)
        pairs = np.unique(rows * size + distinct.indices.to_numpy())
        counts += np.bincount(start + pairs // size, minlength=len(sample))
    usual_terms = _usual(counts)
    length = min(max(usual_terms, LEAST_TERMS), MOST_TERMS)
    runs = "words, pairs of words and runs of characters" if characters else "words and pairs of words"
    encoder = {"encoder": "terms", **({"characters": characters} if characters else {}), "length": length}
    return encoder, f"{runs}; 95 % of the texts have at most {usual_terms:,} different ones, and {usual_words:,} words"


def word_encoder(texts: Sequence[str]) -> dict[str, Any] | None:
    """The encoder `sequence` for short texts, whose order a network learns beside their terms; None for long ones. On the questions of
    conf/trec.yaml, drafts of one seed reach an accuracy of 0.856 by terms alone, and 0.912 by both."""
    sample = pa.array(texts[:: -(-len(texts) // MOST_TEXTS)], pa.string())
    usual_words = _usual(pc.list_value_length(words(sample)).to_numpy())
    return {"encoder": "sequence", "length": max(usual_words, LEAST_WORDS)} if usual_words <= SHORT else None


def text_training(rows: int) -> dict[str, Any]:
    """`train` for so many texts."""
    adam = {"optimizer": "adam", "lr": 1e-3, "weight_decay": 0}
    return {"workers": 2, "epochs": epochs_for(rows, EPOCHS), "global_batch": batch_rows(rows), **adam}


def _usual(counts: np.ndarray) -> int:
    """The value that 95 % of the counts do not exceed."""
    return int(np.sort(counts)[-(-95 * len(counts) // 100) - 1])


def draft_documents(request: Request) -> Draft | None:
    """Draft the config for texts in class folders. None if few of the files are texts, or if their folders are no classes.

    Raises ConfigError for a file that is no text."""
    contents = list_contents(request.data)
    files = contents.select_endings(DOCUMENTS) or _files_without_type(contents)
    if contents.is_file or 2 * len(files) < len(contents.files) or not has_class_folders(files):
        return None
    check_kinds(contents, "texts", {file.ending for file in files})
    classes = find_classes(request.data, files)
    texts = []
    for file in spread(contents.files, MOST_FILES):
        text = read_beginning(contents.place(file), file.bytes, MOST_BYTES)
        if text is None:
            raise ConfigError(f"{contents.place(file)} is no text; name a folder without this file")
        texts.append(text)
    encoding = max((text.encoding for text in texts), default="")
    options = {"wholetext": True} | ({"encoding": encoding} if encoding else {})
    settings = {"format": "text", "path": text_path(contents), "file_column": "path", "options": options}
    table = SampledFiles(settings, files, (), lambda file: Path(contents.place(file)).read_bytes())
    about_endings = () if files[0].ending in DOCUMENTS else (f"files without an ending are texts, by the content of {len(texts)}",)
    about_encoding = (f"the texts are not UTF-8: {encoding} is assumed",) if encoding else ()
    encoder, reason = term_encoder([text.text for text in texts])
    learning = Learning(
        noun="text",
        feature="text",
        encoder=encoder,
        encoder_reason=f"{reason}, of {len(texts)} texts",
        task={"kind": "text"},
        train=text_training(train_rows(classes.train_files or classes.files, classes.splits)),
        assumptions=(*about_endings, *about_encoding),
    )
    return draft_files(request, contents, classes, table, "value", learning)


def _files_without_type(contents: FolderContents) -> tuple[FoundFile, ...]:
    """The files whose names have no ending that says what they are, if they are texts and no tables; none otherwise."""
    files = tuple(file for file in contents.files if not is_file_type(file.ending))
    beginnings = [read_beginning(contents.place(file), file.bytes, TYPE_BYTES) for file in spread(files, TYPE_FILES)]
    texts = [beginning for beginning in beginnings if beginning]
    tables = sum(is_tabular(text.lines) for text in texts)
    return files if len(texts) == len(beginnings) and 2 * tables < len(texts) else ()


def draft_sentences(request: Request) -> Draft | None:
    """Draft the config for lines of a label and a sentence. None if no file has such lines."""
    contents = list_contents(request.data)
    files = _files_of_set(contents) if contents.is_file else contents.files
    no_texts = table_endings()
    if any(file.ending in no_texts for file in files):
        return None
    beginnings = [read_beginning(contents.place(file), file.bytes, SEEN_BYTES) for file in files[:SEEN_FILES]]
    places = [place for beginning in beginnings if beginning and (place := _label_place(beginning))]
    if len(places) < len(files):
        return None
    group = choose_group(contents, files)
    texts = {}
    for split, file in group.items():
        if text := read_beginning(contents.place(file), file.bytes):
            check_lines(contents.place(file), text)
            texts[split] = text
    return _draft_lines(request, contents, group, texts, places[0])


def _draft_lines(
    request: Request, contents: FolderContents, group: Mapping[str, FoundFile], texts: Mapping[str, Beginning], place: LabelPlace
) -> Draft:
    """The draft for lines of texts by split, whose labels have the same place."""
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
        "target": {"label": "binary" if set(classes) == {"0", "1"} else "label"},
    }
    source = _source_of_lines({split: contents.place(file) for split, file in group.items()}, texts, place, classes)
    sections = {"name": request.name, "source": source, "dataset": dataset, "task": {"kind": "text"}, "train": text_training(rows)}
    totals = name_list([f"{count.total():,} {split}".strip() for split, count in counts.items()])
    doubts = [f"{group[split].name} is not UTF-8: {text.encoding} is assumed" for split, text in texts.items() if text.encoding]
    if not all(text.is_whole for text in texts.values()):
        doubts.append("labels and lengths are those of the first 32 MB of each file")
    return Draft(sections, (f"Sentences of {len(classes)} classes: {totals}.",), comments, tuple(doubts))


def _source_of_lines(
    paths: Mapping[str, str], texts: Mapping[str, Beginning], place: LabelPlace, classes: Collection[str]
) -> dict[str, Any]:
    """The section `source` of files by split, or of one file, whose split is empty."""
    are_numbers = all(re.fullmatch("-?[0-9]{1,9}", label) for label in classes)
    label = f"try_cast({place.label} AS int)" if are_numbers else place.label
    where = "\nWHERE trim(value) <> ''" if any("" in text.lines for text in texts.values()) else ""
    if splits := [split for split in paths if split]:
        rows = "\n  UNION ALL ".join(f"SELECT value, '{split}' AS split FROM {split}" for split in splits)
        query = f"SELECT {label} AS label, {place.text} AS sentence, split\nFROM (\n  {rows}\n){where}"
    else:
        query = f"SELECT {label} AS label, {place.text} AS sentence FROM lines{where}"
    options = {split: {"options": {"encoding": text.encoding}} if text.encoding else {} for split, text in texts.items()}
    source: dict[str, Any] = {
        "tables": {split or "lines": {"format": "text", "path": path, **options[split]} for split, path in paths.items()},
        "query": query,
    }
    if len(classes) <= LISTED_CLASSES and all(text.is_whole for text in texts.values()):
        labels = ", ".join(sorted(classes, key=int)) if are_numbers else list_values(classes)
        source["expect"] = {"a known label": f"label IN ({labels})"}
    return source


def _files_of_set(contents: FolderContents) -> tuple[FoundFile, ...]:
    """The file, and those beside it whose names have the words of other splits."""
    file = contents.files[0]
    neighbours = [FoundFile(path.name, path.stat().st_size) for path in sorted(Path(contents.root).iterdir()) if path.is_file()]
    groups = group_by_split([neighbour for neighbour in neighbours if not neighbour.name.startswith((".", "_"))])
    group = next((group for group in groups.values() if file in group.values()), {"": file})
    return tuple(group.values()) if group.get("train") == file else (file,)


def _label_place(beginning: Beginning) -> LabelPlace | None:
    """The place of the label in nearly all lines; None if there is none that few labels fill."""
    lines = [line for line in beginning.lines if line.strip()]
    if is_tabular([line.replace("\t", " ", 1) for line in lines]):
        return None
    for place in LABEL_PLACES:
        matches = [match for line in lines if (match := place.pattern.fullmatch(line))]
        have_words = sum(bool(re.search(r"[^\W\d]{2}.*\s", match["text"])) for match in matches)
        labels = Counter(match["label"] for match in matches)
        if len(labels) == 1:  # only if no other word looks so
            are_labels = re.fullmatch("-?[0-9]+|__label__.*", next(iter(labels))) is not None
        else:
            repeated = sum(count > 1 for count in labels.values())
            are_labels = len(labels) <= min(MOST_LABELS, labels.total() / 10) and 2 * repeated > len(labels)
        if are_labels and len(matches) >= 0.99 * len(lines) > 0 and have_words > 0.8 * len(lines):
            return place
    return None
