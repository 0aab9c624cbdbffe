"""Encoders of many numbers in one value: arrays of a fixed shape, pixels, PNG and JPEG files."""

from io import BytesIO
from math import inf, nan
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pytest
from fitting import fit_encoder
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.features import arrays
from pipelines.data.features.media_files import JPEG
from pipelines.errors import ConfigError

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 8, 6), np.uint8)


def tensors(settings: dict[str, Any], values: pa.Array) -> list[np.ndarray | None]:
    """Each row's tensor, None where it was refused."""
    encoder = fit_encoder(settings, values)
    column = encoder.column("x", "feature")
    output = encoder.encode(values)
    assert output.type == column.field.type
    return [None if row is None else np.frombuffer(row, column.dtype).reshape(column.shape) for row in output.to_pylist()]


def file(pixels: np.ndarray, kind: str, **options: Any) -> bytes:
    """Pixels, channels first, as a PNG or JPEG file."""
    stream = BytesIO()
    PIL.Image.fromarray(pixels.transpose(1, 2, 0).squeeze()).save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(pa.int32(), "int32"), (pa.float64(), "float32"), (pa.float32(), "float32"), (pa.uint8(), "uint8"), (pa.bool_(), "uint8")],
)
@pytest.mark.parametrize("listed", [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 2)], ids=["list", "large", "fixed"])
def test_identity_of_arrays(kind: pa.DataType, dtype: str, listed: Any) -> None:
    values = pa.array([[1, 0], [0, 1]], pa.list_(pa.int32())).cast(pa.list_(kind)).cast(listed(kind))
    first, second = tensors({"encoder": "identity", "shape": [2]}, values)
    assert first is not None and second is not None
    assert (first.dtype, first.tolist(), second.tolist()) == (dtype, [1, 0], [0, 1])


def test_identity_of_arrays_refuses_other_shapes_and_missing_elements() -> None:
    values = pa.array([[1.0, 2.0], [3.0], None, [4.0, None], [5.0, nan], [6.0, inf], [1e300, 1.0], [7.0, 8.0], []])
    rows = tensors({"encoder": "identity", "shape": [2]}, values)
    assert [None if row is None else row.tolist() for row in rows] == [[1, 2], *[None] * 6, [7, 8], None]
    integers = tensors({"encoder": "identity", "shape": [2]}, pa.array([[1, 2], [3, None], [4, 5]]))
    assert [None if row is None else row.tolist() for row in integers] == [[1, 2], None, [4, 5]]


@given(st.data())
def test_nested_arrays_equal_their_flat_form(data: st.DataObject) -> None:
    lengths = st.sampled_from([1, 2, 2, 2, 2])
    numbers = st.one_of(st.none(), *[st.integers(-9, 9)] * 5)
    inner = lengths.flatmap(lambda length: st.lists(numbers, min_size=length, max_size=length))
    outer = lengths.flatmap(lambda length: st.lists(st.one_of(inner, inner, inner, st.none()), min_size=length, max_size=length))
    rows = data.draw(st.lists(st.one_of(outer, st.none()), min_size=1, max_size=9))
    values = pa.array([[[0, 0], [0, 0]], *rows], pa.list_(pa.list_(pa.int64())))[1:]
    encoded = tensors({"encoder": "identity", "shape": [2, 2]}, values)

    def whole(row: list | None) -> bool:
        return row is not None and [len(line or []) for line in row] == [2, 2] and None not in [number for line in row for number in line]

    assert [None if row is None else row.tolist() for row in encoded] == [row if whole(row) else None for row in rows]


def test_identity_of_arrays_does_not_impute() -> None:
    with pytest.raises(ConfigError, match="does not impute elements of arrays; COALESCE"):
        fit_encoder({"encoder": "identity", "shape": [1], "impute": 0}, pa.array([[1.0]]))
    with pytest.raises(ConfigError, match="arrays need their shape"):
        fit_encoder("identity", pa.array([[1.0]]))
    with pytest.raises(ConfigError, match="flat or nested like the shape"):
        fit_encoder({"encoder": "identity", "shape": [1, 1, 1]}, pa.array([[[1.0]]]))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([PIXELS.tobytes()]),
        pa.array([PIXELS.tobytes()], pa.large_binary()),
        pa.array([PIXELS.tobytes()], pa.binary(PIXELS.size)),
        pa.array([PIXELS.ravel().tolist()], pa.list_(pa.int32())),
        pa.array([PIXELS.ravel().astype(float).tolist()]),
        pa.array([PIXELS.tolist()]),
        pa.array([file(PIXELS, "PNG")]),
    ],
    ids=["bytes", "large", "fixed", "int32", "double", "nested", "png"],
)
def test_image_of_the_same_pixels_in_every_form(values: pa.Array) -> None:
    (pixels,) = tensors({"encoder": "image", "shape": [3, 8, 6]}, values)
    assert np.array_equal(pixels, PIXELS)


def test_image_files_are_converted_and_resized() -> None:
    grey = np.full((1, 20, 30), 200, np.uint8)
    clear = np.concatenate([np.full((3, 4, 4), 100, np.uint8), np.zeros((1, 4, 4), np.uint8)])
    deep = BytesIO()
    PIL.Image.fromarray(np.full((5, 5), 200 << 8, np.uint16)).save(deep, "PNG")
    files = [file(grey, "PNG"), file(grey, "JPEG"), deep.getvalue(), file(clear, "PNG")]
    for row, level in zip(tensors({"encoder": "image", "shape": [3, 8, 6]}, pa.array(files)), (200, 200, 200, 100), strict=True):
        assert row is not None
        assert np.abs(row.astype(int) - level).max() <= 1
    (pixels,) = tensors({"encoder": "image", "shape": [1, 8, 6]}, pa.array([file(PIXELS, "PNG")]))
    assert pixels is not None
    assert pixels.shape == (1, 8, 6)


def test_image_refuses_bytes_that_are_none_and_says_what_they_are() -> None:
    png, jpeg = file(PIXELS, "PNG"), file(PIXELS, "JPEG")
    altered = bytearray(png)
    altered[len(png) // 2] ^= 255
    formats = ", not PNG or JPEG or 144 bytes of pixels"
    faults = {
        b"": f"it is empty{formats}",
        b"GIF89a": f"it is a GIF picture{formats}",
        b"<!DOCTYPE html><p>404": f"it is a page of HTML{formats}",
        b"RIFF\4\0\0\0WEBPVP8 ": f"it is a WebP picture{formats}",
        b"\0" * 143: f"it is of an unknown kind (first bytes 0, 0, 0, 0){formats}",
        png[:40]: "it is a truncated PNG file, without its end",
        png[: len(png) // 2]: "it is a truncated PNG file, without its end",
        bytes(altered): "it is a damaged PNG file",
        jpeg[:100]: "it is a truncated JPEG file, without its end",
        png[:8]: "it is a truncated PNG file, without its end",
        JPEG: "it is a truncated JPEG file, without its end",
    }
    settings = {"encoder": "image", "shape": [3, 8, 6]}
    assert tensors(settings, pa.array([None, *faults], pa.binary())) == [None] * (len(faults) + 1)
    encoder = fit_encoder(settings, pa.array([png]))
    assert {content: encoder.fault(content) for content in faults} == faults and encoder.fault(None) == ""


def test_a_png_that_was_altered_or_cut_is_refused_or_gives_the_same_pixels() -> None:
    png = file(PIXELS, "PNG")
    altered = [bytes([*png[:place], png[place] ^ 1, *png[place + 1 :]]) for place in range(len(png))]
    cut = [png[:length] for length in range(len(png))]
    rows = tensors({"encoder": "image", "shape": [3, 8, 6]}, pa.array([png, *altered, *cut]))
    accepted = [row for row in rows if row is not None]
    assert 1 <= len(accepted) <= 25  # the end mark's 12 bytes say nothing
    assert all(np.array_equal(row, PIXELS) for row in accepted)


@given(st.binary(max_size=60), st.sampled_from(["PNG", "JPEG"]))
def test_image_survives_any_bytes(noise: bytes, kind: str) -> None:
    complete = file(PIXELS, kind)
    start = len(noise) * 7 % len(complete)
    tensors({"encoder": "image", "shape": [3, 8, 6]}, pa.array([complete[:start] + noise + complete[start + len(noise) :]]))


def test_image_refuses_numbers_that_are_no_pixels() -> None:
    values = pa.array([[0.0, 255.0], [0.5, 1.0], [-1.0, 0.0], [256.0, 0.0], [nan, 0.0], [None, 0.0], None, [1.0]])
    rows = tensors({"encoder": "image", "shape": [1, 1, 2]}, values)
    assert rows[0] is not None
    assert rows[0].tolist() == [[[0, 255]]]
    assert rows[1:] == [None] * 7


def test_image_refuses_a_small_file_that_asks_for_many_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MAX_PIXELS", 99)
    files = pa.array([file(np.zeros((1, 10, 10), np.uint8), "PNG"), file(np.zeros((1, 9, 11), np.uint8), "PNG")])
    settings = {"encoder": "image", "shape": [1, 2, 2]}
    assert [row is None for row in tensors(settings, files)] == [True, False]
    assert fit_encoder(settings, files).fault(files[0].as_py()) == "it has 10x10 pixels, more than 99"


def test_raw_pixels_that_start_like_a_jpeg_are_pixels() -> None:
    pixels = bytes([0xFF, 0xD8, 0xFF, 7])
    (encoded,) = tensors({"encoder": "image", "shape": [1, 2, 2]}, pa.array([pixels]))
    assert encoded is not None
    assert encoded.tobytes() == pixels
