"""Boxes around the objects of images, and a network that finds them.

1. `settings`   has the encoder `boxes` and the task `detection`.
2. `encoders`   turns annotations, as those of Pascal VOC, into a tensor.
3. `task`       trains a `network` on augmented images; `peaks` turns its output into boxes, and needs no torch.
4. `metrics`    has average precisions, details for the page of a run, and predictions without a network; `figures` draws them.
5. `draft`      is for `lockstep init`.
"""
