"""Boxes around the objects of images, and a network that finds them.

1. `settings`   has the encoder `boxes` and the task `detection`.
2. `encoders`   turns annotations, as those of Pascal VOC, into a tensor.
3. `task`       trains a `network` on augmented images by its `losses`; `predicted_boxes` turns its output into boxes, and needs no torch.
4. `average_precision` measures these; `box_details` has the details for the page of a run, which `figures` draws, and predictions
                without a network.
5. `draft`      is for `lockstep init`.
"""
