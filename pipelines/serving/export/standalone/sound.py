"""Encoder of recordings."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines.applications.speech.spectrogram import Spectrogram, spectrogram
from pipelines.applications.speech.wav import UnreadableSoundError
from pipelines.serving.export.standalone.columns import FAULTS, Column, encoder

_SETTINGS = ("sample_rate", "seconds", "mels", "window_seconds", "hop_seconds")


@encoder("log_mel")
def log_mel(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    transform = _transform(settings)
    encoded = np.zeros((len(column.values), transform.mels, transform.frames), np.float32)
    refused = np.zeros(len(column.values), bool)
    for row, content in enumerate(column.values):
        try:
            encoded[row] = transform.wav_log_mels(content or b"")
        except UnreadableSoundError:
            refused[row] = True
    return encoded, refused


def _transform(settings: Mapping[str, Any]) -> Spectrogram:
    return spectrogram(**{name: settings[name] for name in _SETTINGS})


FAULTS["log_mel"] = lambda settings, content: _transform(settings).fault(content)
