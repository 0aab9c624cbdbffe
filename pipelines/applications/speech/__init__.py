"""Recordings with a class each.

1. `settings`  has the encoder `log_mel` and the task `speech`.
2. `encoders`  makes spectrograms of recordings; `sound` has all of it that needs NumPy alone.
3. `task`      has a convolutional network.
4. `draft`     is for `lockstep init`.
"""
