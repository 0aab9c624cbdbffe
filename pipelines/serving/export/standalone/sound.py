"""Encoder of recordings."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines.data.features.media.spectrogram import spectrogram
from pipelines.serving.export.standalone.columns import Column, encoder

_SETTINGS = ("sample_rate", "seconds", "mels", "window_seconds", "hop_seconds")


@encoder("log_mel")
def log_mel(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    transform = spectrogram(**{name: settings[name] for name in _SETTINGS})
    encoded = np.zeros((len(column.values), transform.mels, transform.frames), np.float32)
    refused = np.zeros(len(column.values), bool)
    for row, content in enumerate(column.values):
        mels = transform.wav_log_mels(content)
        refused[row] = mels is None
        if mels is not None:
            encoded[row] = mels
    return encoded, refused
