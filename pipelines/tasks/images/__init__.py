"""Images with one target each.

1. `vision`        is a small network or a `resnet`.
2. `augmentation`  shifts, mirrors and masks images in training; blends neighbours and mixes their labels.
"""
