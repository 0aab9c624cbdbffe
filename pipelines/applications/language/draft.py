"""Drafts the config for texts without classes: a language model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.config.messages.words import show_count
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, KeyPath, Request
from pipelines.init.media.class_folders import folder_splits
from pipelines.init.media.folder_contents import (
    FolderContents,
    FoundFile,
    endings_besides_text,
    list_contents,
    spread,
)
from pipelines.init.media.text_files import Beginning, check_lines, group_by_split, is_tabular, read_beginning, text_path

MOST_FILES = 200
MOST_BYTES = 2**25
LEAST_CHARACTERS = 2_000
MOST_CHARACTERS = 300
"""Different characters from which on byte pairs are shorter."""
CHARACTERS_BYTES, WHOLE_BYTES = 8_000_000, 200_000_000
"""The most bytes of texts that are learned by character, and of a file that is read as one text."""
FEW_TEXTS = 50
STEPS, BATCH = 1_700, 32
"""Steps of training at about this number, as in conf/shakespeare.yaml, and windows in each."""


@dataclass(frozen=True)
class Corpus:
    """A sample of the texts."""

    texts: tuple[Beginning, ...]
    files: int
    bytes: int

    @property
    def encoding(self) -> str:
        """The encoding of those that are not UTF-8; empty if all are."""
        return max(text.encoding for text in self.texts)

    @property
    def characters(self) -> int:
        """Different characters in the sample."""
        return len(set().union(*(set(text.text) for text in self.texts)))

    @property
    def is_list(self) -> bool:
        """Whether a line is a text: a single file without blank lines, whose lines are short and mostly different."""
        lines = self.texts[0].lines if self.files == 1 else []
        return (
            len(lines) >= 100
            and all(lines)
            and len(set(lines)) > len(lines) / 2
            and sum(len(line.split()) <= 3 for line in lines) > 0.9 * len(lines)
        )


@dataclass(frozen=True)
class TextsOfSplit:
    """The texts of a published split."""

    path: str
    """Of the file, or of the folder that holds them."""
    files: tuple[FoundFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def draft_language(request: Request) -> Draft | None:
    """Draft the config for a text, a list of names or words, or a folder of texts. None if the files are something else."""
    contents = list_contents(request.data)
    if request.target or contents.select_endings(endings_besides_text()):
        return None
    corpus = _read_corpus(contents)
    if corpus is None:
        return None
    if corpus.bytes < LEAST_CHARACTERS:
        raise ConfigError(
            f"{request.data}: {corpus.bytes:,} bytes of text, too few for a language model; add some, until there are {LEAST_CHARACTERS:,}"
        )
    files = _texts_by_split(contents)
    source, split, split_comment = _source_of_splits(contents, corpus, files) if files else _source(contents, corpus)
    encoder, encoder_reason, tokens = _encoder(corpus)
    share = files["train"].bytes / sum(texts.bytes for texts in files.values()) if files else 0.9
    train, train_reason = _training(int(tokens // encoder["length"] * share))
    comments: dict[KeyPath, str] = {
        ("dataset", "split"): split_comment,
        ("dataset", "features", "text"): encoder_reason,
        ("train",): train_reason,
    }
    doubts = ["there are no classes: the task is a language model"]
    if corpus.is_list:
        doubts.append("each line is a text of its own, since lines are short and different")
    if corpus.encoding:
        doubts.append(f"the text is not UTF-8: {corpus.encoding} is assumed")
    if contents.about:
        doubts.append(f"{contents.about[0]} is about the data, and left out")
    files_text = f"{corpus.files:,} files" if corpus.files > 1 else "one file"
    dataset = {"path": f"data/{request.name}", "split": split, "features": {"text": encoder}}
    task: dict[str, Any] = {"kind": "language", "layers": 4, "heads": 4, "width": 128}
    return Draft(
        {"name": request.name, "source": source, "dataset": dataset, "task": task, "train": train},
        (f"Text of {show_count(corpus.bytes, 'byte')}, in {files_text}. The model predicts each token from the previous ones.",),
        comments,
        tuple(doubts),
    )


def _read_corpus(contents: FolderContents) -> Corpus | None:
    """A sample of the texts; None if a file is no text, or most of the bytes are those of tables."""
    texts = []
    for file in spread(contents.files, MOST_FILES):
        text = read_beginning(contents.place(file), file.bytes, MOST_BYTES // min(len(contents.files), MOST_FILES))
        if text is None:
            return None
        texts.append(text)
    tabular_bytes = sum(text.bytes for text in texts if is_tabular(text.lines))
    if 2 * tabular_bytes > sum(text.bytes for text in texts):
        return None
    size = texts[0].bytes if len(texts) == 1 else sum(file.bytes for file in contents.files)
    return Corpus(tuple(texts), len(contents.files), size)


def _texts_by_split(contents: FolderContents) -> dict[str, TextsOfSplit]:
    """The texts of each split, where the names of files tell, as `wiki.train.tokens` and `wiki.valid.tokens` do, or those of folders. Empty
    unless every file is of a split, and training has texts, and validation, if no share of training's is enough for it."""
    groups = group_by_split(contents.files)
    files = next(iter(groups.values()))
    if len(groups) == 1 and len(files) == len(contents.files) and {"train", "validation"} <= files.keys():
        splits = {split: TextsOfSplit(contents.place(file), (file,)) for split, file in files.items()}
    else:
        by_folder = folder_splits(sorted({(file.folders or ("",))[0] for file in contents.files}))
        splits = {
            split: TextsOfSplit(f"{contents.path}/{folder}", tuple(file for file in contents.files if file.folders[0] == folder))
            for folder, split in by_folder.items()
        }
        if splits and "validation" not in splits and len(splits["train"].files) < FEW_TEXTS:
            return {}
    return {split: splits[split] for split in ("train", "validation", "test") if split in splits}


def _source_of_splits(
    contents: FolderContents, corpus: Corpus, splits: Mapping[str, TextsOfSplit]
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """As `_source`, of the files of each split."""
    largest = max(file.bytes for texts in splits.values() for file in texts.files)
    options: dict[str, Any] = {"wholetext": True} if largest <= WHOLE_BYTES else {}
    options |= {"encoding": corpus.encoding} if corpus.encoding else {}
    if not options.get("wholetext"):
        check_lines(contents.path, corpus.texts[0])
    table = {"format": "text", **({"options": options} if options else {})}
    tables = {split: {**table, "path": texts.path} for split, texts in splits.items()}
    rows = "\nUNION ALL\n".join(f"SELECT value AS text, '{split}' AS split FROM {split} WHERE trim(value) <> ''" for split in splits)
    share = {} if "validation" in splits else {"validation": 0.1}
    names = ", ".join(texts.path.rpartition("/")[2] for texts in splits.values())
    return {"tables": tables, "query": rows}, {"by": "split", **share}, f"by the names: {names}"


def _source(contents: FolderContents, corpus: Corpus) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The source, the split, and its reason."""
    table: dict[str, Any] = {"format": "text", "path": text_path(contents)}
    options: dict[str, Any] = {"encoding": corpus.encoding} if corpus.encoding else {}
    by_hash = {"train": 0.9, "validation": 0.05, "test": 0.05}
    rows = "SELECT value AS text FROM texts WHERE trim(value) <> ''"
    if corpus.is_list or corpus.bytes / corpus.files > WHOLE_BYTES:
        check_lines(table["path"], corpus.texts[0])
        table |= {"options": options} if options else {}
        return {"tables": {"texts": table}, "query": rows}, by_hash, "by a hash of the line"
    table["options"] = {"wholetext": True, **options}
    if corpus.files >= FEW_TEXTS:
        return {"tables": {"texts": table}, "query": rows}, by_hash, "by a hash of the text"
    query = (
        "WITH cut AS (SELECT value, CAST(length(value) * 0.9 AS INT) AS train_length FROM texts)\n"
        "SELECT substring(value, 1, train_length) AS text, 'train' AS split FROM cut\n"
        "UNION ALL\n"
        "SELECT substring(value, train_length + 1) AS text, 'validation' AS split FROM cut"
    )
    reason = "the first nine tenths of a text are for training, the rest for validation"
    return {"tables": {"texts": table}, "query": query}, {"by": "split"}, reason


def _encoder(corpus: Corpus) -> tuple[dict[str, Any], str, int]:
    """The encoder, its reason, and the tokens of all texts, about."""
    if corpus.is_list:
        longest = max(map(len, corpus.texts[0].lines))
        return {"encoder": "characters", "length": 64}, f"a window holds some lines; the longest has {longest} characters", corpus.bytes
    if corpus.characters <= MOST_CHARACTERS and corpus.bytes <= CHARACTERS_BYTES:
        return {"encoder": "characters", "length": 128}, f"{corpus.characters} different characters", corpus.bytes
    vocabulary = 2_048 if corpus.bytes < 50_000_000 else 8_192
    reason = f"byte pairs: {corpus.bytes:,} bytes of text, with {corpus.characters:,} different characters"
    return {"encoder": "bpe", "length": 256, "vocabulary": vocabulary}, reason, corpus.bytes // 3


def _training(windows: int) -> tuple[dict[str, Any], str]:
    """`train`, for about so many windows in the training split, with its reason."""
    batch = BATCH
    while batch > 8 and windows < 8 * batch:
        batch //= 2
    epochs = min(max(round(STEPS * batch / max(windows, 1)), 1), 40)
    schedule = {"lr": 4e-3 if batch == BATCH else 2e-3, "schedule": "cosine", "warmup": 0.05}
    if windows > STEPS * batch:
        reason = f"about {show_count(windows, 'window')} for training: more max_steps make a better model"
        return {"workers": 2, "epochs": 1, "max_steps": STEPS, "global_batch": batch, **schedule}, reason
    return {"workers": 2, "epochs": epochs, "global_batch": batch, **schedule}, f"about {show_count(windows, 'window')} for training"


LAST_DRAFTERS = (draft_language,)
