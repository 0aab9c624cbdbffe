"""Encoder of sound: log-mel spectrograms."""

from __future__ import annotations

import wave
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipelines.applications.speech.sound import Spectrogram, UnreadableSoundError, read_samples, spectrogram
from pipelines.data.features.arrays import is_bytes
from pipelines.data.features.base import Encoder, tensors_with_nulls
from pipelines.data.versions.schema import Role, TensorColumn

if TYPE_CHECKING:
    from pipelines.applications.speech.settings import LogMelSettings


class LogMel(Encoder["LogMelSettings"]):
    """The `Spectrogram` of a WAV file, its channels averaged. Anything but WAV files with the sample rate of the settings is refused."""

    @classmethod
    def refusal(cls, settings: LogMelSettings, kind: pa.DataType) -> str:
        return "" if is_bytes(kind) else "it takes the bytes of WAV files, as from the formats binaryFile and tar"

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="float32", shape=(self.settings.mels, self._spectrogram.frames), role=role)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        encoded = np.zeros((len(inputs[0]), self.settings.mels, self._spectrogram.frames), np.float32)
        refused = np.zeros(len(inputs[0]), bool)
        for row, value in enumerate(inputs[0]):
            try:
                encoded[row] = self._spectrogram.wav_log_mels(value.as_py() or b"")
            except UnreadableSoundError:
                refused[row] = True
        return tensors_with_nulls(encoded, refused)

    def fault(self, *values: Any) -> str:
        try:
            if values[0] is not None:
                read_samples(values[0], self._spectrogram.sample_rate, self._spectrogram.samples)
        except UnreadableSoundError as error:
            return str(error)
        return ""

    def example(self, kind: pa.DataType) -> Any:
        file = BytesIO()
        with wave.open(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(self.settings.sample_rate)
            sound.writeframes(bytes(2))
        return file.getvalue()

    @cached_property
    def _spectrogram(self) -> Spectrogram:
        settings = self.settings
        return spectrogram(settings.sample_rate, settings.seconds, settings.mels, settings.window_seconds, settings.hop_seconds)
