"""Boxes around the objects of images, and a network that finds them.

1. `settings`   has the encoder `boxes` and the task `detection`.
2. `encoder`    turns annotations into a tensor; `voc` reads those of Pascal VOC.
3. `task`       has the model, `pyramid`, its loss on `targets`, `peaks` that turn its output into boxes, and `augmentation`.
4. `metrics`    are average precisions; `mean_boxes` predicts without a network; `details` and `figures` are for the page of a run.
5. `draft`      is for `lockstep init`.
"""
