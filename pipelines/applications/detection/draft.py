"""Who drafts configs for images with boxes: in a JSON file, or in XML files beside the images."""

from pipelines.applications.detection.coco_draft import draft_coco
from pipelines.applications.detection.voc_draft import draft_voc

DRAFTERS = (draft_voc, draft_coco)
