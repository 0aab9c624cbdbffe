"""Drafts the config for texts in class folders: a file is a text."""

from pathlib import Path

from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request
from pipelines.init.media.classes import find_classes, has_class_folders
from pipelines.init.media.contents import DOCUMENTS, FolderContents, FoundFile, check_kinds, is_file_type, list_contents, spread
from pipelines.init.media.file_table import SampledFiles
from pipelines.init.media.folder_tables import Learning, draft_files, train_rows
from pipelines.init.media.text_files import Beginning, is_tabular, read_beginning, text_path
from pipelines.init.media.texts import term_encoder, text_training

MOST_FILES, MOST_BYTES = 500, 2**18
"""The most files that are opened, and the most bytes of each that are read."""
TYPE_FILES, TYPE_BYTES = 50, 2**14
"""The same, where the content decides whether files are texts."""


def draft_documents(request: Request) -> Draft | None:
    """Draft the config for texts in class folders. None if few of the files are texts, or if their folders are no classes."""
    contents = list_contents(request.data)
    files = contents.select_endings(DOCUMENTS) or _files_without_type(contents)
    if contents.is_file or 2 * len(files) < len(contents.files) or not has_class_folders(files):
        return None
    check_kinds(contents, "texts", {file.ending for file in files})
    classes = find_classes(request.data, files)
    texts = _read_texts(contents)
    encoding = max((text.encoding for text in texts), default="")
    options = {"wholetext": True} | ({"encoding": encoding} if encoding else {})
    table = SampledFiles(
        {"format": "text", "path": text_path(contents), "file_column": "path", "options": options},
        files,
        (),
        lambda file: Path(contents.place(file)).read_bytes(),
    )
    about_endings = () if files[0].ending in DOCUMENTS else (f"files without an ending are texts, by the content of {len(texts)}",)
    about_encoding = (f"the texts are not UTF-8: {encoding} is assumed",) if encoding else ()
    encoder, reason = term_encoder([text.text for text in texts])
    learning = Learning(
        "text",
        "text",
        encoder,
        f"{reason}, of {len(texts)} texts",
        {"kind": "text"},
        text_training(train_rows(classes.train_files or classes.files, classes.splits)),
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


def _read_texts(contents: FolderContents) -> list[Beginning]:
    """Beginnings of a sample of the texts. Raises ConfigError for a file that is no text."""
    texts = []
    for file in spread(contents.files, MOST_FILES):
        text = read_beginning(contents.place(file), file.bytes, MOST_BYTES)
        if text is None:
            raise ConfigError(f"{contents.place(file)} is no text; name a folder without this file")
        texts.append(text)
    return texts
