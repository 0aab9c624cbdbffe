"""Encoder of sound: reads WAV files, and makes log-mel spectrograms of them.

Integer and float samples are read, the extensible header, and files of streams whose header has no length. The standard library's `wave`
reads only integers, and which headers depends on the version of Python. The format: RIFF WAVE (Microsoft and IBM, 1991),
WAVE_FORMAT_EXTENSIBLE (Microsoft), and RF64 (EBU Tech 3306).
"""

from __future__ import annotations

import struct
import wave
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.data.features.arrays import is_bytes
from pipelines.data.features.base import FileEncoder
from pipelines.data.features.media_files import UnreadableError, file_kind
from pipelines.data.versions.schema import Role, TensorColumn

if TYPE_CHECKING:
    from pipelines.applications.speech.settings import LogMelSettings

_INTEGERS, _FLOATS, _EXTENSIBLE = 1, 3, 0xFFFE
_FORMATS = {0x2: "ADPCM", 0x6: "A-law", 0x7: "mu-law", 0x11: "IMA ADPCM", 0x31: "GSM", 0x55: "MP3", 0x1610: "AAC"}
_WIDTHS = {_INTEGERS: (1, 2, 3, 4), _FLOATS: (4, 8)}
_SUBFORMAT = bytes.fromhex("000000001000800000aa00389b71")
"""What follows the format in the GUID of an extensible header."""
_UNKNOWN_LENGTH = 0x7FFF_F000
"""Programs that write to a pipe do not know the length, and declare 0, or this or more."""
_CUT = "the WAV file is truncated"
SILENCE = 1e-10
"""Power that is added before the logarithm, about the power of 16-bit rounding noise; a sine at full scale has power 1."""
STEP = 1 / 1024
"""Spectrograms are rounded to multiples of this, because the last bits of a logarithm differ between processors."""


@dataclass(frozen=True)
class SoundHeader:
    sample_rate: int
    """In Hz."""
    channels: int
    width: int
    """Bytes of a sample."""
    is_float: bool
    start: int
    """Where the samples begin in the file."""
    frames: int
    """Samples of each channel."""

    @property
    def seconds(self) -> float:
        return self.frames / self.sample_rate


def read_sound_header(content: bytes) -> SoundHeader:
    """The header of a WAV file, all of whose declared samples are there. Raises UnreadableError."""
    if content[:4] not in (b"RIFF", b"RF64") or content[8:12] != b"WAVE":
        raise UnreadableError(f"it is {file_kind(content)}, not a WAV file" if len(content) >= 12 or not content else _CUT)
    position, samples, long_size = 12, None, 0
    while position + 8 <= len(content):
        name, size = content[position : position + 4], struct.unpack_from("<I", content, position + 4)[0]
        start = position + 8
        if name == b"ds64" and start + 16 <= len(content):
            long_size = struct.unpack_from("<Q", content, start + 8)[0]
        elif name == b"fmt ":
            samples = _parse_format(content[start : start + size])
        elif name == b"data":
            if samples is None:
                raise UnreadableError("its header does not say how samples are stored")
            return _count_samples(replace(samples, start=start), long_size if content[:4] == b"RF64" else size, content)
        position = start + size + size % 2
    raise UnreadableError(_CUT)


def read_samples(content: bytes, sample_rate: int, limit: int) -> np.ndarray:
    """The first samples, at most `limit`, as float64, the mean of all channels; integers become numbers within ±1.

    Raises UnreadableError for what is no WAV file, is damaged, has no samples, or has another sample rate."""
    header = read_sound_header(content)
    if header.sample_rate != sample_rate:
        raise UnreadableError(f"its sample rate is {header.sample_rate:,} Hz, not {sample_rate:,} Hz")
    count = min(header.frames, limit) * header.channels
    numbers = sample_numbers(content[header.start : header.start + count * header.width], header.width, header.is_float)
    if header.is_float and not np.isfinite(numbers).all():
        raise UnreadableError("a sample is no number, or infinite")
    return numbers.reshape(-1, header.channels).mean(1)


def sample_numbers(data: bytes, width: int, is_float: bool) -> np.ndarray:
    """Little-endian samples of `width` bytes as float64, integers as numbers within ±1: those of 8 bits are unsigned with an offset of 128,
    wider ones signed."""
    if is_float:
        return np.frombuffer(data, f"<f{width}").astype(np.float64)
    if width == 1:
        return (np.frombuffer(data, np.uint8) - 128.0) / 2.0**7
    if width == 3:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0] / 2.0**31
    return np.frombuffer(data, f"<i{width}") / 2.0 ** (8 * width - 1)


def _parse_format(chunk: bytes) -> SoundHeader:
    if len(chunk) < 16:
        raise UnreadableError(_CUT)
    code, channels, rate, _, frame_bytes, bits = struct.unpack_from("<HHIIHH", chunk)
    if code == _EXTENSIBLE:
        if len(chunk) < 40 or chunk[26:40] != _SUBFORMAT:
            raise UnreadableError("its extensible header names no known format; convert it to PCM")
        code = struct.unpack_from("<H", chunk, 24)[0]
    if code not in _WIDTHS:
        raise UnreadableError(f"its samples are {_FORMATS.get(code, f'of format {code:#x}')}; convert it to PCM")
    width = (bits + 7) // 8
    if width not in _WIDTHS[code]:
        raise UnreadableError(f"its samples are {'floats' if code == _FLOATS else 'integers'} of {bits} bits; convert it to 16 bits")
    if not channels or not rate or frame_bytes != channels * width:
        raise UnreadableError(f"its header is damaged: {channels} channels, {rate:,} Hz, {frame_bytes} bytes for a sample of each")
    return SoundHeader(rate, channels, width, code == _FLOATS, 0, 0)


def _count_samples(header: SoundHeader, size: int, content: bytes) -> SoundHeader:
    """The header with the number of samples, where its chunk of samples declares so many bytes."""
    present = len(content) - header.start
    # A length of 0 is that of a stream only if the file declares nothing behind its header either.
    is_stream = size >= _UNKNOWN_LENGTH or (size == 0 and struct.unpack_from("<I", content, 4)[0] + 8 <= header.start)
    if size > present and not is_stream:
        raise UnreadableError(f"{_CUT}: its header declares {size:,} bytes of samples, and {present:,} are there")
    count = (present if is_stream else size) // (header.channels * header.width)
    if not count:
        raise UnreadableError("it has no samples")
    return replace(header, frames=count)


class Spectrogram(NamedTuple):
    """Natural logarithm of the power of a short-time Fourier transform with a Hann window, in triangular bands of the mel scale
    (Davis and Mermelstein 1980; mel = 2595 log10(1 + Hz / 700), O'Shaughnessy 1987)."""

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

    def log_mels(self, samples: np.ndarray) -> np.ndarray:
        """Float64 of shape (mels, frames). Silence follows samples that are too few."""
        filled = np.pad(samples, (0, self.samples - len(samples)))
        frames = np.lib.stride_tricks.sliding_window_view(filled, self.window)[:: self.hop] * self.hann
        power = np.abs(np.fft.rfft(frames, transform_size(self.window))) ** 2
        mels = np.stack([(power[:, span] * weights).sum(1) for span, weights in self.bands])
        return np.round(np.log(mels + SILENCE) / STEP) * STEP


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


class LogMel(FileEncoder["LogMelSettings"]):
    """The `Spectrogram` of a WAV file, its channels averaged. Anything but WAV files with the sample rate of the settings is refused."""

    @classmethod
    def refusal(cls, settings: LogMelSettings, kind: pa.DataType) -> str:
        return "" if is_bytes(kind) else "it takes the bytes of WAV files, as from the formats binaryFile and tar"

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="float32", shape=(self.settings.mels, self._spectrogram.frames), role=role)

    def read(self, content: bytes | None) -> np.ndarray:
        if content is None:
            raise UnreadableError("")
        return self._spectrogram.log_mels(read_samples(content, self.settings.sample_rate, self._spectrogram.samples))

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
        """The transform of the settings, with the constants that it needs."""
        rate = self.settings.sample_rate
        window, hop = round(self.settings.window_seconds * rate), round(self.settings.hop_seconds * rate)
        frames = 1 + (round(self.settings.seconds * rate) - window) // hop
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
        return Spectrogram(frames, window, hop, hann * 2 / hann.sum(), mel_bands(rate, self.settings.mels, window))
