"""Boxes around objects in images.

1. `detection`     is the task, `pyramid` its network.
2. `augmentation`  mirrors, enlarges and colours images with their boxes in training.
3. `targets`       has the loss, `peaks` makes boxes of the network's output, `metrics` measures them.
4. `trivial`       predicts boxes without an image.
"""
