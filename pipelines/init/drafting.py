"""Chooses who drafts the config of some data."""

from pathlib import Path

from pipelines.applications.detection.coco_draft import draft_coco
from pipelines.applications.detection.voc_draft import draft_voc
from pipelines.applications.language.draft import draft_language
from pipelines.applications.segmentation.mask_draft import draft_masks
from pipelines.applications.segmentation.volume_draft import draft_volumes
from pipelines.applications.speech.draft import draft_recordings
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Drafter, Request
from pipelines.init.media.documents import draft_documents
from pipelines.init.media.idx_images import draft_idx
from pipelines.init.media.pictures import draft_pictures
from pipelines.init.media.sentences import draft_sentences
from pipelines.init.tables.draft import draft_table

DRAFTERS: tuple[Drafter, ...] = (
    draft_idx,
    draft_masks,
    draft_volumes,
    draft_voc,
    draft_coco,
    draft_pictures,
    draft_recordings,
    draft_sentences,
    draft_documents,
    draft_language,
    draft_table,
)
"""In this order; the first that returns a draft decides."""


def draft_config(request: Request) -> Draft:
    """Draft the config of the data. Raises ConfigError if there are no such data, or none of a known kind."""
    path = Path(request.data)
    if not path.exists():
        raise ConfigError(f"{request.data}: no such file or folder; name a file or a folder that exists")
    if not (path.is_file() or path.is_dir()):
        raise ConfigError(f"{request.data}: neither a file nor a folder, as a pipe is, which can be read once; write it to a file")
    for drafter in DRAFTERS:
        if draft := drafter(request):
            return draft
    raise ConfigError(
        f"{request.data}: neither a table nor a folder of a known kind; write its config by hand, as docs/how-to/pipeline.md shows"
    )
