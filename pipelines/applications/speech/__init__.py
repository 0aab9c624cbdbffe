"""Recordings with a class each.

1. `settings`  has the encoder `log_mel` and the task `speech`.
2. `encoder`   makes spectrograms (`spectrogram`) of recordings (`wav`).
3. `task`      has a convolutional network.
4. `draft`     is for `lockstep init`.
"""
