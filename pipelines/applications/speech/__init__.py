"""Recordings with a class each.

1. `settings`  has the encoder `log_mel` and the task `speech`.
2. `encoders`  reads WAV files, and makes spectrograms of them.
3. `task`      has a convolutional network.
4. `draft`     is for `lockstep init`.
"""
