"""Drafts the config for texts in class folders: a file is a text."""

from pathlib import Path

from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request
from pipelines.init.media.classes import find_classes, has_class_folders
from pipelines.init.media.contents import DOCUMENTS, FolderContents, check_kinds, list_contents, spread
from pipelines.init.media.file_table import SampledFiles
from pipelines.init.media.folder_tables import Learning, draft_files, train_rows
from pipelines.init.media.text_files import Beginning, read_beginning, text_path
from pipelines.init.media.texts import term_encoder, text_training

MOST_FILES, MOST_BYTES = 500, 2**18
"""The most files that are opened, and the most bytes of each that are read."""


def draft_documents(request: Request) -> Draft | None:
    """Draft the config for texts in class folders. None if few of the files are texts, or if their folders are no classes."""
    contents = list_contents(request.data)
    files = contents.select_endings(DOCUMENTS)
    if contents.is_file or 2 * len(files) < len(contents.files) or not has_class_folders(files):
        return None
    check_kinds(contents, "texts", DOCUMENTS)
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
    encoder, reason = term_encoder([text.text for text in texts])
    learning = Learning(
        "texts",
        "text",
        encoder,
        f"{reason}, of {len(texts)} texts",
        {"kind": "text"},
        text_training(train_rows(classes.train_files or classes.files, classes.splits)),
        assumptions=(f"the texts are not UTF-8: {encoding} is assumed",) if encoding else (),
    )
    return draft_files(request, contents, classes, table, "value", learning)


def _read_texts(contents: FolderContents) -> list[Beginning]:
    """Beginnings of a sample of the texts. Raises ConfigError for a file that is no text."""
    texts = []
    for file in spread(contents.files, MOST_FILES):
        text = read_beginning(contents.place(file), file.bytes, MOST_BYTES)
        if text is None:
            raise ConfigError(f"{contents.place(file)} is no text; name a folder without this file")
        texts.append(text)
    return texts
