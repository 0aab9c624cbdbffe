"""Spectrograms of WAV files, against known tones and SciPy."""

import contextlib
import struct
import wave
from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest
from fitting import fit_encoder
from hypothesis import given
from hypothesis import strategies as st
from raw import raw

from pipelines.applications.speech.encoders import SILENCE, STEP, UnreadableError, read_samples
from pipelines.applications.speech.settings import LogMelSettings
from pipelines.data.features.base import Encoder
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


def chunks(*parts: tuple[bytes, bytes], kind: bytes = b"RIFF", length: int | None = None) -> bytes:
    """A file of named chunks. `length` is what it declares of itself."""
    body = b"".join(name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in parts)
    return kind + struct.pack("<I", len(body) + 4 if length is None else length) + b"WAVE" + body


def audio_format(code: int, bits: int, channels: int = 1, rate: int = RATE, subformat: bytes = b"") -> bytes:
    width = (bits + 7) // 8
    return struct.pack("<HHIIHH", code, channels, rate, rate * channels * width, channels * width, bits) + subformat


def extensible(code: int, bits: int, guid: bytes = bytes.fromhex("000000001000800000aa00389b71")) -> bytes:
    return audio_format(0xFFFE, bits, subformat=struct.pack("<HHIH", 22, bits, 4, code) + guid)


def wav_file(description: bytes, samples: bytes = bytes(99)) -> bytes:
    return chunks((b"fmt ", description), (b"data", samples))


TONE = tone(440) * 0.5
SHORTS = np.round(TONE * 2**15).astype("<i2").tobytes()
TRIPLES = np.round(TONE * 2**23).astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
FMT = (b"fmt ", audio_format(1, 16))
UNKNOWN, NOTE = b"\xff\xff\xff\xff", (b"LIST", b"INFOISFT\3\0\0\0me\0")
HEADER = chunks(FMT, NOTE)
DS64 = (b"ds64", struct.pack("<QQQI", 0, len(SHORTS), RATE, 0))
FORMS = {
    "float": chunks((b"fmt ", audio_format(3, 32)), (b"fact", bytes(4)), (b"data", TONE.astype("<f4").tobytes())),
    "double": wav_file(audio_format(3, 64), TONE.astype("<f8").tobytes()),
    "stereo float": wav_file(audio_format(3, 32, 2), np.repeat(TONE, 2).astype("<f4").tobytes()),
    "extensible, 24 bits": wav_file(extensible(1, 24), TRIPLES),
    "extensible float": wav_file(extensible(3, 32), TONE.astype("<f4").tobytes()),
    "chunks before and after": chunks(NOTE, FMT, NOTE, (b"data", SHORTS), NOTE),
    "stream without a length": HEADER + b"data" + UNKNOWN + SHORTS,
    "stream of length 0": HEADER + b"data" + bytes(4) + SHORTS,
    "stream of a great length": HEADER + b"data" + struct.pack("<I", 0x7FFFF000) + SHORTS + b"\1",
    "RF64": chunks(DS64, FMT, kind=b"RF64", length=2**32 - 1) + b"data" + UNKNOWN + SHORTS,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_wav_is_the_same_sound(encoder: Encoder, form: str) -> None:
    expected, mels = spectrogram(encoder, wav(TONE), FORMS[form])
    loud = expected > -5
    assert mels[loud] == pytest.approx(expected[loud], abs=0.01) and loud.any()
    assert encoder.fault(FORMS[form]) == ""


COMPLETE = wav(TONE)
FAULTS = {
    "nothing": (b"", "it is empty, not a WAV file"),
    "four bytes": (b"RIFF", "the WAV file is truncated"),
    "a header cut off": (COMPLETE[:30], "the WAV file is truncated"),
    "no samples behind the header": (HEADER, "the WAV file is truncated"),
    "samples cut off": (
        COMPLETE[:-4_000],
        "the WAV file is truncated: its header declares 16,000 bytes of samples, and 12,000 are there",
    ),
    "another rate": (wav(TONE, rate=16_000), "its sample rate is 16,000 Hz, not 8,000 Hz"),
    "no sample": (wav(np.zeros(0)), "it has no samples"),
    "no sample, with a note": (chunks(FMT, (b"data", b""), NOTE), "it has no samples"),
    "PNG": (b"\x89PNG\r\n\x1a\n" + bytes(99), "it is a PNG picture, not a WAV file"),
    "FLAC": (b"fLaC" + bytes(99), "it is a FLAC file, not a WAV file"),
    "Ogg": (b"OggS" + bytes(99), "it is an Ogg file, not a WAV file"),
    "a text": (b"no sound at all", "it is of an unknown kind (first bytes 110, 111, 32, 115), not a WAV file"),
    "A-law": (wav_file(audio_format(6, 8)), "its samples are A-law; convert it to PCM"),
    "an unknown code": (wav_file(audio_format(0x123, 16)), "its samples are of format 0x123; convert it to PCM"),
    "half floats": (wav_file(audio_format(3, 16)), "its samples are floats of 16 bits; convert it to 16 bits"),
    "a GUID of nobody": (
        wav_file(extensible(1, 16, bytes(14))),
        "its extensible header names no known format; convert it to PCM",
    ),
    "no channel": (
        wav_file(audio_format(1, 16, 0)),
        "its header is damaged: 0 channels, 8,000 Hz, 0 bytes for a sample of each",
    ),
    "samples before their format": (chunks((b"data", SHORTS), FMT), "its header does not say how samples are stored"),
    "NaN": (
        wav_file(audio_format(3, 32), np.full(9, np.nan, "<f4").tobytes()),
        "a sample is no number, or infinite",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_other_bytes_are_refused_by_their_cause(encoder: Encoder, name: str) -> None:
    content, fault = FAULTS[name]
    assert encoder.encode(pa.array([COMPLETE, content, None], pa.binary())).is_null().to_pylist() == [False, True, True]
    assert (encoder.fault(content), encoder.fault(None)) == (fault, "")


@given(st.binary(max_size=60), st.sampled_from(list(FORMS)))
def test_any_bytes_are_read_or_refused(noise: bytes, form: str) -> None:
    start = len(noise) * 7 % 80
    content = FORMS[form][:start] + noise + FORMS[form][start + len(noise) :]
    with contextlib.suppress(UnreadableError):
        read_samples(content, RATE, RATE)


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
