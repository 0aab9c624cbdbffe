"""Masks: a class for each pixel of an image or a volume.

1. `segmentation`  is the task, `unet` its network.
2. `patches`       cuts, bends and mirrors the parts on which it is trained.
3. `metrics`       measures masks, and `trivial` predicts them without an image.
"""
