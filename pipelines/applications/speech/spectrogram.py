"""Log-mel spectrograms of WAV files, with NumPy and the standard library alone: exported models contain this file's code."""

from typing import NamedTuple

import numpy as np

from pipelines.applications.speech.wav import UnreadableSoundError, read_samples

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

    def wav_log_mels(self, content: bytes) -> np.ndarray:
        """Float64 of shape (mels, frames). Raises UnreadableSoundError unless the content is a WAV file with this sample rate."""
        return self.log_mels(read_samples(content, self.sample_rate, self.samples))

    def fault(self, content: bytes | None) -> str:
        """Why the content is refused; empty if it is not, or is missing."""
        try:
            if content is not None:
                read_samples(content, self.sample_rate, self.samples)
        except UnreadableSoundError as error:
            return str(error)
        return ""

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
