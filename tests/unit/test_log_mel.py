"""Spectrograms of WAV files, against known tones and SciPy."""

import wave
from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest
from fitting import fit_encoder
from raw import raw

from pipelines.config.features import LogMelSettings
from pipelines.data.features.base import Encoder
from pipelines.data.features.media.spectrogram import SILENCE, STEP
from pipelines.data.versions.schema import to_numpy
from pipelines.errors import ConfigError

RATE = 8_000


def wav(samples: np.ndarray, width: int = 2, channels: int = 1, rate: int = RATE) -> bytes:
    """Samples within ±1, shape (frames,), as a file of so many bytes a sample, the same on each channel."""
    integers = np.round(np.repeat(samples, channels) * (2 ** (8 * width - 1) - 1)).astype(np.int64)
    data = (
        (integers + 128).astype(np.uint8).tobytes()
        if width == 1
        else b"".join(int(n).to_bytes(width, "little", signed=True) for n in integers)
    )
    file = BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(width)
        sound.setframerate(rate)
        sound.writeframes(data)
    return file.getvalue()


def tone(hertz: float, seconds: float = 1.0) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(int(seconds * RATE)) / RATE)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return fit_encoder({"encoder": "log_mel", "sample_rate": RATE}, pa.array([wav(tone(440))]))


def spectrogram(encoder: Encoder, *files: bytes) -> np.ndarray:
    """float32, shape (files, mels, frames)."""
    return to_numpy(encoder.column("x", "feature"), encoder.encode(pa.array(files)))


@pytest.mark.parametrize("hertz", [300, 1_000, 2_500])
def test_a_tone_is_loudest_in_its_band(encoder: Encoder, hertz: float) -> None:
    (mels,) = spectrogram(encoder, wav(tone(hertz)))
    assert mels.shape == (40, 98)
    edges = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), 42)
    middles = 700 * (10 ** (edges[1:-1] / 2595) - 1)
    assert abs(mels.mean(1).argmax() - np.abs(middles - hertz).argmin()) <= 1
    assert mels.max() == pytest.approx(0, abs=0.7), "a tone of full scale has power 1"


def test_silence_and_what_follows_a_short_file_are_the_floor(encoder: Encoder) -> None:
    silent, short = spectrogram(encoder, wav(np.zeros(RATE)), wav(tone(440, 0.3)))
    floor = round(np.log(SILENCE) / STEP) * STEP
    assert (silent == np.float32(floor)).all()
    assert (short[:, 30:] == np.float32(floor)).all() and (short[:, :29].max(0) > -2).all()


def test_widths_and_channels_of_one_sound_agree(encoder: Encoder) -> None:
    sound = tone(700) * 0.5
    expected = spectrogram(encoder, wav(sound))[0]
    for width, channels in ((1, 1), (3, 1), (4, 1), (2, 2)):
        mels = spectrogram(encoder, wav(sound, width, channels))[0]
        loud = expected > -5
        assert mels[loud] == pytest.approx(expected[loud], abs=0.1), (width, channels)


def test_values_are_rounded_so_that_processors_agree(encoder: Encoder) -> None:
    mels = spectrogram(encoder, wav(tone(440)))
    assert (mels / STEP == np.round(mels / STEP)).all()


def test_other_bytes_are_refused(encoder: Encoder) -> None:
    complete = wav(tone(440))
    files = [complete, None, b"", b"RIFF", complete[:-4_000], wav(tone(440), rate=16_000), wav(np.zeros(0)), b"\x89PNG" + bytes(99)]
    assert encoder.encode(pa.array(files, pa.binary())).is_null().to_pylist() == [False] + [True] * 7


def test_its_example_can_be_encoded(encoder: Encoder) -> None:
    assert encoder.encode(pa.array([encoder.example(pa.binary())])).null_count == 0


def test_short_windows_are_said() -> None:
    with pytest.raises(ConfigError, match="a window must fit"):
        LogMelSettings(sample_rate=RATE, seconds=0.01)


def test_a_real_recording_is_encoded(encoder: Encoder) -> None:
    import tarfile

    with tarfile.open(raw("free-spoken-digits", "recordings.tar.gz")) as archive:
        member = next(member for member in archive if member.isfile())
        file = archive.extractfile(member)
        assert file
        (mels,) = spectrogram(encoder, file.read())
    assert mels.min() > -24 and mels.max() < 1 and mels.std() > 1
