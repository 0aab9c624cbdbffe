"""Drafts configs for images with masks, and for volumes with labels."""

from pipelines.applications.segmentation.mask_draft import draft_masks
from pipelines.applications.segmentation.volume_draft import draft_volumes

DRAFTERS = (draft_masks, draft_volumes)
UNREADABLE = dict.fromkeys((".dcm", ".mha", ".mhd", ".nrrd", ".mgz"), "the encoder volume reads NIfTI; convert the volumes to .nii.gz")
"""What to do with other volumes, by the endings of their files."""
