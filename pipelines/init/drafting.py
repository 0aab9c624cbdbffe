"""Chooses who drafts the config of some data."""

import re
from pathlib import Path

from pipelines.config.slices import slice_modules
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Drafter, Request
from pipelines.init.media.images import draft_pictures
from pipelines.init.media.labelled_texts import draft_documents, draft_sentences
from pipelines.init.search_section import add_search
from pipelines.init.tables.table_draft import draft_table

_STREAM = re.compile("/dev/stdin|/dev/fd/.*|/proc/[^/]*/fd/.*")
"""What a shell puts in a file's place, which is another one when ETL reads it."""
_OF_CORE: tuple[Drafter, ...] = (draft_pictures, draft_sentences, draft_documents)


def drafters() -> list[Drafter]:
    """Who is asked for a draft, in this order: those in `DRAFTERS` of slices' modules `draft`, which know what they look for; those of the
    core; those in `LAST_DRAFTERS` of slices, which take what is left of texts; and that of tables."""
    modules = list(slice_modules("draft").values())
    first, last = ([drafter for module in modules for drafter in getattr(module, name, ())] for name in ("DRAFTERS", "LAST_DRAFTERS"))
    return [*first, *_OF_CORE, *last, draft_table]


def address_drafters() -> list[Drafter]:
    """Who is asked for a draft of what may be no path, such as `delta:folder@3`: those in `ADDRESS_DRAFTERS` of slices' modules `draft`."""
    return [drafter for module in slice_modules("draft").values() for drafter in getattr(module, "ADDRESS_DRAFTERS", ())]


def draft_config(request: Request) -> Draft:
    """Draft the config of the data, with a search of its settings. Raises ConfigError if there are no such data, or none of a known kind,
    or if a budget is given for a task whose settings are not searched."""
    return add_search(_draft_data(request), request)


def _draft_data(request: Request) -> Draft:
    if not request.data:
        raise ConfigError("the path of the data is empty; name a file or a folder")
    for drafter in address_drafters():
        if draft := drafter(request):
            return draft
    path = Path(request.data)
    if not path.exists():
        raise ConfigError(f"{request.data}: no such file or folder; name a file or a folder that exists")
    if not (path.is_file() or path.is_dir()) or _STREAM.fullmatch(request.data):
        raise ConfigError(f"{request.data}: neither a file nor a folder, as a pipe is, which can be read once; write it to a file")
    for drafter in drafters():
        if draft := drafter(request):
            return draft
    raise ConfigError(
        f"{request.data}: neither a table nor a folder of a known kind; write its config by hand, as docs/how-to/pipeline.md shows"
    )
