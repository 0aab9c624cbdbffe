"""Encoder of sound: log-mel spectrograms."""

import wave
from functools import cached_property
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config import features as config
from pipelines.dataset.schema import Role, TensorColumn
from pipelines.features.arrays import is_bytes
from pipelines.features.base import Encoder, masked_tensor

SILENCE = 1e-10
"""Power that is added before the logarithm, about the power of 16-bit rounding noise; a sine at full scale has power 1."""
STEP = 1 / 1024
"""Spectrograms are rounded to multiples of this, because the last bits of a logarithm differ between processors."""


class LogMel(Encoder[config.LogMel]):
    """Natural logarithm of the power of a short-time Fourier transform with a Hann window, in triangular bands of the mel scale
    (Davis and Mermelstein 1980; mel = 2595 log10(1 + Hz / 700), O'Shaughnessy 1987).

    Channels are averaged. Anything but WAV files with integer samples and the sample rate of the settings is refused.
    """

    @classmethod
    def refusal(cls, settings: config.LogMel, kind: pa.DataType) -> str:
        return "" if is_bytes(kind) else "it takes the bytes of WAV files, as from the formats binaryFile and tar"

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="float32", shape=(self.settings.mels, self._frames), role=role)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        encoded = np.zeros((len(inputs[0]), self.settings.mels, self._frames), np.float32)
        refused = np.zeros(len(inputs[0]), bool)
        for row, value in enumerate(inputs[0]):
            samples = _samples(value.as_py(), self.settings.sample_rate, self._samples_taken)
            if samples is None:
                refused[row] = True
            else:
                encoded[row] = self._spectrogram(samples)
        return masked_tensor(encoded, refused)

    def example(self, kind: pa.DataType) -> Any:
        file = BytesIO()
        with wave.open(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(self.settings.sample_rate)
            sound.writeframes(bytes(2))
        return file.getvalue()

    @property
    def _window(self) -> int:
        return round(self.settings.window_seconds * self.settings.sample_rate)

    @property
    def _hop(self) -> int:
        return round(self.settings.hop_seconds * self.settings.sample_rate)

    @property
    def _frames(self) -> int:
        return 1 + (round(self.settings.seconds * self.settings.sample_rate) - self._window) // self._hop

    @property
    def _samples_taken(self) -> int:
        return (self._frames - 1) * self._hop + self._window

    @cached_property
    def _hann(self) -> np.ndarray:
        """Periodic Hann window, shape (window,), scaled so that a sine of amplitude 1 has a peak power of 1."""
        window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self._window) / self._window)
        return window * 2 / window.sum()

    @cached_property
    def _bands(self) -> list[tuple[slice, np.ndarray]]:
        """Bins of the transform in each band, and their weights: 1 at the centre of the band, 0 at the centres of its neighbours."""
        bins = _mel(np.fft.rfftfreq(self._points, 1 / self.settings.sample_rate))
        edges = np.linspace(0, _mel(np.array(self.settings.sample_rate / 2)), self.settings.mels + 2)
        found = []
        for low, middle, high in zip(edges, edges[1:], edges[2:], strict=False):
            weights = np.minimum((bins - low) / (middle - low), (high - bins) / (high - middle))
            covered = np.flatnonzero(weights > 0)
            if not len(covered):  # low bands may be narrower than a bin
                covered, weights = np.array([np.abs(bins - middle).argmin()]), np.ones_like(bins)
            span = slice(int(covered[0]), int(covered[-1]) + 1)
            found.append((span, weights[span]))
        return found

    @property
    def _points(self) -> int:
        """Size of the transform: the samples of the window, padded to a power of two."""
        return 1 << (self._window - 1).bit_length()

    def _spectrogram(self, samples: np.ndarray) -> np.ndarray:
        """Log-mel spectrogram, float64 of shape (mels, frames)."""
        filled = np.pad(samples, (0, self._samples_taken - len(samples)))
        frames = np.lib.stride_tricks.sliding_window_view(filled, self._window)[:: self._hop] * self._hann
        power = np.abs(np.fft.rfft(frames, self._points)) ** 2
        mels = np.stack([(power[:, span] * weights).sum(1) for span, weights in self._bands])
        return np.round(np.log(mels + SILENCE) / STEP) * STEP


def _mel(hertz: np.ndarray) -> np.ndarray:
    return 2595 * np.log10(1 + hertz / 700)


def _samples(content: bytes | None, sample_rate: int, most: int) -> np.ndarray | None:
    """The first samples, at most `most`, as float64 within ±1; None if the bytes are not a WAV file with this sample rate."""
    if content is None:
        return None
    try:
        with wave.open(BytesIO(content)) as sound:
            channels, width, rate, count, *_ = sound.getparams()
            data = sound.readframes(min(count, most))
    except (wave.Error, EOFError, RuntimeError):
        return None  # `wave` raises these for truncated files and other formats
    taken = min(count, most)
    is_whole = len(data) == taken * channels * width and count * channels * width <= len(content)
    if rate != sample_rate or not count or width > 4 or not is_whole:
        return None
    return _numbers(data, width).reshape(-1, channels).mean(1) / 2.0 ** (8 * width - 1)


def _numbers(data: bytes, width: int) -> np.ndarray:
    """Little-endian integers of `width` bytes as float64: 8-bit samples are unsigned with an offset of 128, wider ones signed."""
    if width == 1:
        return np.frombuffer(data, np.uint8) - 128.0
    if width == 3:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0] / 256.0
    return np.frombuffer(data, f"<i{width}").astype(np.float64)
