"""Images and their masks, by equal names."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.init.media.contents import FoundFile

FilePair = tuple[FoundFile, FoundFile]
"""An image and its mask."""


@dataclass(frozen=True)
class MaskPairs:
    """The files of two folders."""

    pairs: tuple[FilePair, ...]
    """Sorted by name."""
    lone_images: tuple[str, ...]
    lone_masks: tuple[str, ...]
    """Names of images without a mask, and of masks without an image."""


def pair_files(images: Mapping[str, FoundFile], masks: Mapping[str, FoundFile]) -> MaskPairs:
    """The pairs of equal names, and the names that only one of the folders has. Both arguments are files by name."""
    return MaskPairs(
        tuple((images[name], masks[name]) for name in sorted(images.keys() & masks.keys())),
        tuple(sorted(images.keys() - masks.keys())),
        tuple(sorted(masks.keys() - images.keys())),
    )


def join_query(image_name: str, mask_name: str, masks: str, unit: str) -> str:
    """The query over the tables `images` and `masks`, with the columns `name`, `image` and the unit. The names are SQL over `path`."""
    return (
        f"SELECT name, images.content AS image, {masks}.content AS {unit}\n"
        f"FROM (SELECT {image_name} AS name, content FROM images) AS images\n"
        f"FULL OUTER JOIN (SELECT {mask_name} AS name, content FROM {masks}) AS {masks} USING (name)"
    )
