"""Series of unequal length, a row each.

1. `settings`  has the encoder `series` and the task of that name.
2. `encoders`  pads series.
3. `task`      has random kernels, or a small convolutional network.
"""
