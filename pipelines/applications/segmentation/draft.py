"""Drafts configs for images with masks, and for volumes with labels."""

from pipelines.applications.segmentation.mask_draft import draft_masks
from pipelines.applications.segmentation.volume_draft import draft_volumes

DRAFTERS = (draft_masks, draft_volumes)
