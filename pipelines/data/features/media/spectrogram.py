"""Log-mel spectrograms of WAV files, with NumPy and the standard library alone: exported models contain this file's code."""

import wave
from io import BytesIO
from typing import NamedTuple

import numpy as np

SILENCE = 1e-10
"""Power that is added before the logarithm, about the power of 16-bit rounding noise; a sine at full scale has power 1."""
STEP = 1 / 1024
"""Spectrograms are rounded to multiples of this, because the last bits of a logarithm differ between processors."""


class Spectrogram(NamedTuple):
    """Natural logarithm of the power of a short-time Fourier transform with a Hann window, in triangular bands of the mel scale
    (Davis and Mermelstein 1980; mel = 2595 log10(1 + Hz / 700), O'Shaughnessy 1987)."""

    sample_rate: int
    """In Hz."""
    mels: int
    frames: int
    window: int
    """Samples of a frame."""
    hop: int
    """Samples from the start of one frame to the start of the next."""
    hann: np.ndarray
    """Periodic Hann window, shape (window,), scaled so that a sine of amplitude 1 has a peak power of 1."""
    bands: list[tuple[slice, np.ndarray]]
    """Bins of the transform in each band, and their weights: 1 at the centre of the band, 0 at the centres of its neighbours."""

    @property
    def samples(self) -> int:
        """Samples that all frames together cover."""
        return (self.frames - 1) * self.hop + self.window

    def wav_log_mels(self, content: bytes | None) -> np.ndarray | None:
        """Float64 of shape (mels, frames). None unless the content is a WAV file of integer samples with this sample rate."""
        samples = wav_samples(content, self.sample_rate, self.samples)
        return None if samples is None else self.log_mels(samples)

    def log_mels(self, samples: np.ndarray) -> np.ndarray:
        """Float64 of shape (mels, frames). Silence follows samples that are too few."""
        filled = np.pad(samples, (0, self.samples - len(samples)))
        frames = np.lib.stride_tricks.sliding_window_view(filled, self.window)[:: self.hop] * self.hann
        power = np.abs(np.fft.rfft(frames, transform_size(self.window))) ** 2
        mels = np.stack([(power[:, span] * weights).sum(1) for span, weights in self.bands])
        return np.round(np.log(mels + SILENCE) / STEP) * STEP


def spectrogram(sample_rate: int, seconds: float, mels: int, window_seconds: float, hop_seconds: float) -> Spectrogram:
    """The transform for recordings of a length, with the constants that it needs."""
    window, hop = round(window_seconds * sample_rate), round(hop_seconds * sample_rate)
    frames = 1 + (round(seconds * sample_rate) - window) // hop
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    return Spectrogram(sample_rate, mels, frames, window, hop, hann * 2 / hann.sum(), mel_bands(sample_rate, mels, window))


def mel_bands(sample_rate: int, mels: int, window: int) -> list[tuple[slice, np.ndarray]]:
    """The bins of each band, evenly spaced on the mel scale from 0 to half the sample rate, with their weights."""
    bins = _mel(np.fft.rfftfreq(transform_size(window), 1 / sample_rate))
    edges = np.linspace(0, _mel(np.array(sample_rate / 2)), mels + 2)
    bands = []
    for low, middle, high in zip(edges, edges[1:], edges[2:], strict=False):
        weights = np.minimum((bins - low) / (middle - low), (high - bins) / (high - middle))
        covered = np.flatnonzero(weights > 0)
        if not len(covered):  # low bands may be narrower than a bin
            covered, weights = np.array([np.abs(bins - middle).argmin()]), np.ones_like(bins)
        span = slice(int(covered[0]), int(covered[-1]) + 1)
        bands.append((span, weights[span]))
    return bands


def transform_size(window: int) -> int:
    """The samples of a window, padded to a power of two."""
    return 1 << (window - 1).bit_length()


def _mel(hertz: np.ndarray) -> np.ndarray:
    return 2595 * np.log10(1 + hertz / 700)


def wav_samples(content: bytes | None, sample_rate: int, limit: int) -> np.ndarray | None:
    """The first samples, at most `limit`, as float64 within ±1, the mean of all channels; None if the bytes are not a WAV file with this
    sample rate."""
    if content is None:
        return None
    try:
        with wave.open(BytesIO(content)) as sound:
            channels, width, rate, count, *_ = sound.getparams()
            data = sound.readframes(min(count, limit))
    except (wave.Error, EOFError, RuntimeError):
        return None  # `wave` raises these for truncated files and other formats
    sample_count = min(count, limit)
    is_complete = len(data) == sample_count * channels * width and count * channels * width <= len(content)
    if rate != sample_rate or not count or width > 4 or not is_complete:
        return None
    return pcm_numbers(data, width).reshape(-1, channels).mean(1) / 2.0 ** (8 * width - 1)


def pcm_numbers(data: bytes, width: int) -> np.ndarray:
    """Little-endian integers of `width` bytes as float64: 8-bit samples are unsigned with an offset of 128, wider ones signed."""
    if width == 1:
        return np.frombuffer(data, np.uint8) - 128.0
    if width == 3:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0] / 256.0
    return np.frombuffer(data, f"<i{width}").astype(np.float64)
