"""Encoders of masks and volumes: what they take, what they refuse and why, and how much a file may ask for."""

import gzip
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pytest

from pipelines.applications.segmentation import nifti as nifti_files
from pipelines.applications.segmentation.encoders import Mask, Volume
from pipelines.applications.segmentation.nifti import MAX_VOXELS, Voxels, centre, read_grid, read_nifti, resample
from pipelines.applications.segmentation.settings import MaskSettings, VolumeSettings
from pipelines.data.features import Encoders, refusal_kind
from pipelines.data.features.media_files import UnreadableError
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import to_numpy
from pipelines.errors import ConfigError

CLASSES = ["cell", "membrane"]


def nifti(values: np.ndarray, affine: np.ndarray | None = None, zipped: bool = False, codes: tuple[int, int] = (1, 1)) -> bytes:
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Image(values, np.eye(4) if affine is None else affine)
    content = bytearray(image.to_bytes())
    content[252:256] = struct.pack("<2h", *codes)
    content = bytes(content)
    return gzip.compress(content) if zipped else content


def png(values: np.ndarray, mode: str | None = None, palette: bool = False) -> bytes:
    picture = PIL.Image.fromarray(values) if mode is None else PIL.Image.fromarray(values).convert(mode)
    if palette:
        picture = PIL.Image.fromarray(values, "L")
        picture = picture.convert("P")
        picture.putdata(values.ravel().tolist())
        picture.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    file = BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def encode(settings: Any, *columns: list[Any], kind: pa.DataType | None = None) -> tuple[list[Any], list[str | None]]:
    """The encoded values of the rows, None for a refused one, and the reasons."""
    implementation = Mask if isinstance(settings, MaskSettings) else Volume
    encoder = implementation(settings, {})
    inputs = settings.inputs("it")
    fitted = FittedEncoder(feature=settings.model_dump(mode="json"), inputs=inputs, state={}, column=encoder.column("it", "target"))
    table = pa.table({name: pa.array(values, kind or pa.binary()) for name, values in zip(inputs, columns, strict=True)})
    encoded, reasons = Encoders({"it": fitted}).encode(table)
    values = iter(to_numpy(fitted.column, encoded["it"].combine_chunks()) if len(encoded) else ())
    return [next(values) if reason is None else None for reason in reasons.to_pylist()], reasons.to_pylist()


def mask(shape: tuple[int, ...] = (2, 3), **settings: Any) -> MaskSettings:
    return MaskSettings(**{"shape": shape, "classes": CLASSES, "values": (255, 0), **settings})


def volume(shape: tuple[int, int, int] = (4, 5, 6), **settings: Any) -> VolumeSettings:
    return VolumeSettings(**{"shape": shape, "normalize": "none", "dtype": "float32", **settings})


GREY = np.array([[255, 0, 255], [0, 0, 255]], np.uint8)
EXPECTED = [[0, 1, 0], [1, 1, 0]]


def test_grey_values_palette_indices_raw_bytes_and_arrays_become_classes() -> None:
    by_index = mask(values=(), classes=["a", "b", "c"])
    wide = np.array([[0, 700, 0], [700, 700, 0]], np.uint16)
    (grey, raw_bytes), reasons = encode(mask(), [png(GREY), GREY.tobytes()])
    assert reasons == [None, None]
    assert grey.tolist() == raw_bytes.tolist() == EXPECTED
    indices = np.array([[0, 1, 2], [2, 2, 0]], np.uint8)
    (palette,), _ = encode(by_index, [png(indices, palette=True)])
    assert palette.tolist() == indices.tolist()
    (sixteen_bits,), _ = encode(mask(values=(0, 700)), [png(wide)])
    assert sixteen_bits.tolist() == EXPECTED
    (black_and_white,), _ = encode(mask(values=(1, 0)), [png(GREY, "1")])
    assert black_and_white.tolist() == EXPECTED
    (nested,), _ = encode(mask(), [GREY.tolist()], kind=pa.list_(pa.list_(pa.int64())))
    (flat,), _ = encode(mask(), [GREY.ravel().tolist()], kind=pa.list_(pa.int32()))
    assert nested.tolist() == flat.tolist() == EXPECTED


def test_classes_and_values_come_back() -> None:
    encoder = Mask(mask(), {})
    assert encoder.classes == ("cell", "membrane") and encoder.names(2) == ["cell", "membrane"]
    assert encoder.decode(np.array(EXPECTED)).tolist() == GREY.tolist()
    assert encoder.column("m", "target").cardinality == 2


JPEG = BytesIO()
PIL.Image.fromarray(GREY).save(JPEG, "JPEG")
BAD_MASKS: dict[str, tuple[bytes | None, str]] = {
    "a value of no class": (png(np.full((2, 3), 7, np.uint8)), ": it has the value 7, which is none of [255, 0]"),
    "another size": (png(GREY.T.copy()), ": it has 2x3 pixels, and not 3x2"),
    "colours": (png(GREY, "RGB"), ": it has colours (RGB), not one number for each pixel"),
    "cut off": (png(np.zeros((2, 3), np.uint8))[:-20], ": it is a truncated PNG file, without its end"),
    "JPEG": (JPEG.getvalue(), ": it is a JPEG picture, not PNG"),
    "bytes": (b"nothing", ": it is of an unknown kind (first bytes 110, 111, 116, 104), not PNG"),
    "no bytes": (b"", ": it is empty, not PNG"),
    "NULL": (None, ""),
}


@pytest.mark.parametrize("name", BAD_MASKS)
def test_a_mask_that_cannot_be_read_is_refused_with_the_reason(name: str) -> None:
    content, fault = BAD_MASKS[name]
    (good, bad), (no_reason, reason) = encode(mask(), [png(GREY), content])
    assert good.tolist() == EXPECTED and no_reason is None and bad is None
    value = "NULL" if content is None else f"{len(content)} bytes"
    assert reason == f"it: mask cannot encode {value}{fault}"
    assert refusal_kind(reason).startswith(f"it: mask cannot encode {'NULL' if content is None else 'a value'}{fault[:4]}")


def test_arrays_with_other_numbers_are_refused() -> None:
    wrong = [GREY.tolist(), [[255, 0, 1], [0, 0, 0]], [[255, 0.5, 0], [0, 0, 0]], [[255, None, 0], [0, 0, 0]], [[255, 0]], None]
    values, _ = encode(mask(), wrong, kind=pa.list_(pa.list_(pa.float64())))
    assert [value is not None for value in values] == [True, False, False, False, False, False]


def test_a_mask_is_resized_only_where_that_is_said_and_never_mixes_classes() -> None:
    large = np.zeros((4, 9), np.uint8)
    large[:2, :3] = 255
    (resized,), reasons = encode(mask(resize=True), [png(large)])
    assert reasons == [None] and resized.tolist() == [[0, 1, 1], [1, 1, 1]]
    random = np.random.default_rng(0).choice(np.array([0, 255], np.uint8), (37, 23))
    (ours,), _ = encode(mask((11, 50), resize=True), [png(random)])
    pillows = np.asarray(PIL.Image.fromarray(random).resize((50, 11), PIL.Image.Resampling.NEAREST))
    assert np.array_equal(ours, (pillows == 0).astype(np.uint8))


def test_a_mask_of_another_size_than_its_image_is_refused() -> None:
    settings = mask(image="picture", resize=True)
    image, small, jpeg = (png(np.zeros(size, np.uint8)) for size in ((2, 3), (4, 6), (2, 3)))
    values, reasons = encode(settings, [png(GREY)] * 4, [image, small, b"nothing", None])
    assert [value is not None for value in values] == [True, False, False, False] and jpeg == image
    assert (
        reasons[1] == f"it: mask cannot encode it {len(png(GREY))} bytes, picture {len(small)} bytes: it has 3x2 pixels, but its image 6x4"
    )
    assert str(reasons[2]).endswith(": its image is of an unknown kind (first bytes 110, 111, 116, 104), not PNG or JPEG")
    assert refusal_kind(str(reasons[1])) == "it: mask cannot encode a value: it has … pixels, but its image …"


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
def test_a_volume_is_read(zipped: bool, dtype: str) -> None:
    values = np.arange(120).reshape(4, 5, 6).astype(dtype)
    (encoded,), reasons = encode(volume(), [nifti(values, zipped=zipped)])
    assert reasons == [None]
    assert encoded.shape == (1, 4, 5, 6) and np.array_equal(encoded[0], values)


def test_axes_go_to_the_right_to_the_front_and_upwards() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    to_ras = np.array([[0, 0, 2.0, 0], [-1.0, 0, 0, 9], [0, -3.0, 0, 0], [0, 0, 0, 1]])  # axes to the back, down, right
    (encoded,), _ = encode(volume((4, 2, 3)), [nifti(values, to_ras)])
    assert np.array_equal(encoded[0], values.transpose(2, 0, 1)[:, ::-1, ::-1])


def test_a_volume_is_padded_and_cut_in_the_middle() -> None:
    assert centre(np.array([1, 2, 3]), (5,)).tolist() == [0, 1, 2, 3, 0]
    assert centre(np.array([1, 2, 3]), (6,)).tolist() == [0, 1, 2, 3, 0, 0]
    assert centre(np.array([1, 2, 3, 4]), (2,)).tolist() == [2, 3]
    assert centre(np.arange(6).reshape(2, 3), (4, 1)).tolist() == [[0], [1], [4], [0]]
    values = np.random.default_rng(0).normal(size=(3, 9, 6)).astype(np.float32)
    (encoded,), _ = encode(volume(), [nifti(values)])
    assert np.array_equal(encoded[0, :3], values[:, 2:7]) and not encoded[0, 3].any()


def test_volumes_have_mean_0_and_deviation_1_and_padding_the_mean() -> None:
    values = np.random.default_rng(0).normal(500, 30, size=(4, 5, 6)).astype(np.float32)
    (encoded,), _ = encode(VolumeSettings(shape=(6, 5, 6)), [nifti(values)])
    assert encoded.dtype == np.float16
    inner = encoded[0, 1:5].astype(np.float64)
    assert inner.mean() == pytest.approx(0, abs=1e-3) and inner.std() == pytest.approx(1, abs=1e-3)
    assert not encoded[0, [0, 5]].any()
    (constant,), reasons = encode(VolumeSettings(shape=(2, 2, 2)), [nifti(np.full((2, 2, 2), 9, np.uint8))])
    assert reasons == [None] and not constant.any()


def test_a_volume_is_resampled_to_the_spacing_and_its_mask_by_the_nearest() -> None:
    ramp = np.broadcast_to(np.arange(8, dtype=np.float32)[:, None, None], (8, 3, 3)).copy()
    affine = np.diag([1.0, 2.0, 2.0, 1.0])
    (encoded,), _ = encode(volume((4, 6, 6), spacing=(2.0, 1.0, 1.0)), [nifti(ramp, affine)])
    assert encoded[0, :, 3, 3].tolist() == [0.5, 2.5, 4.5, 6.5]
    labels = (ramp > 3).astype(np.uint8)
    settings = mask((4, 6, 6), values=(0, 1), spacing=(2.0, 1.0, 1.0))
    (classes,), _ = encode(settings, [nifti(labels, affine)])
    assert classes[:, 3, 3].tolist() == [0, 0, 1, 1] and set(np.unique(classes)) == {0, 1}
    (finer,), _ = encode(volume((16, 3, 3), spacing=(0.5, 2.0, 2.0)), [nifti(ramp, affine)])
    assert finer[0, :4, 0, 0].tolist() == [0.0, 0.25, 0.75, 1.25]


def header(shape: tuple[int, ...], **values: Any) -> bytes:
    """A NIfTI header that claims this shape, without any voxel behind it."""
    nibabel = pytest.importorskip("nibabel")
    head = nibabel.Nifti1Header()
    head.set_data_dtype(np.uint8)
    head["dim"][: len(shape) + 1] = [len(shape), *shape]
    head["pixdim"][1:4] = 1
    head["qform_code"], head["vox_offset"], head["magic"] = 1, 352, b"n+1"
    for name, value in values.items():
        head[name] = value
    return bytes(head.binaryblock) + bytes(4)


ONES = np.ones((2, 2, 2), np.float32)
BAD_VOLUMES: dict[str, tuple[Callable[[], bytes], str]] = {
    "no NIfTI": (lambda: b"nothing of the kind", "it is no NIfTI file"),
    "empty": (lambda: b"", "it is no NIfTI file"),
    "no orientation": (lambda: nifti(ONES, codes=(0, 0)), "it has no orientation: qform_code and sform_code are 0"),
    "a flat orientation": (
        lambda: header((2, 2, 2), sform_code=1, srow_x=[0] * 4) + bytes(8),
        "its orientation is no valid affine matrix",
    ),
    "several volumes": (lambda: nifti(np.ones((2, 2, 2, 3), np.float32)), "it has 2x2x2x3 voxels; a volume has three dimensions"),
    "two dimensions": (lambda: nifti(np.ones((2, 2), np.float32)), "it has 2x2 voxels; a volume has three dimensions"),
    "a huge claim": (lambda: header((32_000, 32_000, 32_000)), f"it claims 32000x32000x32000 voxels, more than {MAX_VOXELS:,}"),
    "a negative size": (lambda: header((2, -2, 2)), "it has 2x-2x2 voxels; a volume has three dimensions"),
    "cut off": (lambda: nifti(ONES)[:-3], "it is cut off: 381 of 384 bytes are there"),
    "cut off in its header": (lambda: nifti(ONES)[:200], "its header is damaged"),
    "two files": (lambda: header((2, 2, 2), magic=b"ni1") + bytes(8), "it is no NIfTI file in one piece (.nii or .nii.gz)"),
    "a damaged gzip stream": (lambda: nifti(ONES, zipped=True)[:20] + b"\x00" * 40, ""),
    "complex numbers": (lambda: nifti(ONES.astype(np.complex64)), "its voxels are complex64, no numbers"),
    "NaN": (lambda: nifti(np.where(ONES > 0, np.float32(np.nan), ONES)), "it has NaN or ±∞"),
    "an unknown dtype": (lambda: header((2, 2, 2), datatype=77) + bytes(8), "its header is damaged"),
    "a far offset": (lambda: header((2, 2, 2), vox_offset=2.0**40) + bytes(8), "its header is damaged"),
    "an offset that is no number": (lambda: header((2, 2, 2), vox_offset=np.nan) + bytes(8), "its header is damaged"),
}


@pytest.mark.parametrize("name", BAD_VOLUMES)
def test_a_volume_that_cannot_be_read_is_refused_with_the_reason(name: str) -> None:
    make, fault = BAD_VOLUMES[name]
    content = make()
    good = nifti(ONES)
    (first, bad), (no_reason, reason) = encode(volume((2, 2, 2)), [good, content])
    assert np.array_equal(first[0], ONES) and no_reason is None and bad is None
    assert str(reason).startswith(f"it: volume cannot encode {len(content)} bytes: {fault}")
    _, (mask_reason,) = encode(mask((2, 2, 2), values=(0, 1)), [content])
    assert mask_reason and str(mask_reason).startswith("it: mask cannot encode")


def test_numbers_beyond_float16_are_refused() -> None:
    _, (reason,) = encode(volume((2, 2, 2), dtype="float16"), [nifti(ONES * 1e6)])
    assert str(reason).endswith(": it has numbers beyond float16")


def test_a_row_of_null_is_refused() -> None:
    pytest.importorskip("nibabel")
    assert encode(volume(), [None]) == ([None], ["it: volume cannot encode NULL"])


def test_any_change_of_a_file_is_read_or_refused() -> None:
    content, random = nifti(np.arange(27, dtype=np.int16).reshape(3, 3, 3)), np.random.default_rng(1)
    changed = []
    for number in range(400):
        altered = bytearray(content)
        altered[random.integers(0, 352)] = random.integers(0, 256)
        changed.append(gzip.compress(bytes(altered)) if number % 2 else bytes(altered))
    values, reasons = encode(volume((3, 3, 3)), changed)
    assert all((value is None) == (reason is not None) for value, reason in zip(values, reasons, strict=True))
    assert any(value is None for value in values) and any(value is not None for value in values)


def test_a_small_file_that_unpacks_to_gigabytes_takes_no_memory() -> None:
    bomb = gzip.compress(header((2, 2, 2)) + bytes(8) + bytes(300 * 2**20), 9)
    assert len(bomb) < 400_000
    tracemalloc.start()
    _, reasons = encode(volume((2, 2, 2)), [bomb])
    _, claim_reasons = encode(volume((2, 2, 2)), [header((400, 400, 400))])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "more bytes than the header claims" in str(reasons[0])
    assert "it is cut off" in str(claim_reasons[0])
    assert peak < 40 * 2**20


def test_a_mask_of_a_volume_lies_where_its_image_does() -> None:
    settings = mask((2, 2, 2), values=(0, 1), image="scan")
    labels = nifti(ONES.astype(np.uint8))
    moved = np.eye(4)
    moved[0, 3] = 5
    scans = [nifti(ONES), nifti(np.ones((3, 2, 2), np.float32)), nifti(ONES, moved), nifti(ONES, codes=(0, 0)), b""]
    values, reasons = encode(settings, [labels] * 5, scans)
    assert [value is not None for value in values] == [True, False, False, False, False]
    faults = ["it has 2x2x2 voxels, but its image 3x2x2", "its orientation or place is another than its image's"]
    faults += ["of its image: it has no orientation: qform_code and sform_code are 0", "of its image: it is no NIfTI file"]
    assert all(str(reason).endswith(f": {fault}") for reason, fault in zip(reasons[1:], faults, strict=True))


def test_nifti_2_and_big_endian_files_are_read() -> None:
    nibabel = pytest.importorskip("nibabel")
    values = np.arange(8, dtype=np.int16).reshape(2, 2, 2)
    second = nibabel.Nifti2Image(values, np.eye(4)).to_bytes()
    header = nibabel.Nifti1Header(endianness=">")
    header.set_data_dtype(np.dtype(">i2"))
    big = nibabel.Nifti1Image(values.astype(">i2"), np.eye(4), header).to_bytes()
    assert struct.unpack(">i", big[:4]) == (348,)
    encoded, _ = encode(volume((2, 2, 2)), [second, big])
    assert all(np.array_equal(volume[0], values) for volume in encoded)


def test_scaled_integers_are_read_in_their_units() -> None:
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Image(np.arange(8, dtype=np.int16).reshape(2, 2, 2), np.eye(4))
    image.header.set_slope_inter(0.5, 10)
    content = bytearray(image.to_bytes())
    content[112:120] = struct.pack("<ff", 0.5, 10)
    (encoded,), _ = encode(volume((2, 2, 2)), [bytes(content)])
    assert encoded.ravel().tolist() == [10 + 0.5 * number for number in range(8)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": (2,)}, "shape"),
        ({"classes": ["a"]}, "classes"),
        ({"values": (0,)}, "values has 1 numbers, but classes has 2; give one number for each class"),
        ({"values": (3, 3)}, "classes and values name each class once"),
        ({"classes": ["a", "a"]}, "classes and values name each class once"),
        ({"spacing": (1, 1, 1)}, "spacing is .*; remove it, or give shape three numbers"),
        ({"shape": (2, 2, 2), "resize": True}, "resize is for images; set spacing"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mask(**settings)


def test_columns_of_other_types_are_refused_with_what_to_do() -> None:
    assert "bytes of NIfTI files" in Volume.refusal(volume(), pa.string())
    assert "arrays of integers" in Mask.refusal(mask(), pa.string())
    assert "leave image out" in Mask.refusal(mask(image="x"), pa.list_(pa.int64()))
    assert Mask.refusal(mask(), pa.list_(pa.list_(pa.int64()))) == Mask.refusal(mask(), pa.binary()) == ""


def test_without_nibabel_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("encoders", "nifti"):
        monkeypatch.setattr(f"pipelines.applications.segmentation.{module}.has_nibabel", lambda: False)
    line = "it needs nibabel, which is not installed; pip install 'lockstep-pipelines[medical]'"
    assert Volume.refusal(volume(), pa.binary()) == Mask.refusal(mask((2, 2, 2)), pa.binary()) == line
    assert Mask.refusal(mask(), pa.binary()) == ""
    with pytest.raises(ConfigError, match=r"a NIfTI file cannot be read: it needs nibabel"):
        encode(volume(), [b"\x5c\x01\x00\x00"])
    assert volume().distributions == mask((2, 2, 2)).distributions == ("nibabel",) and mask().distributions == ()


def test_a_header_may_have_long_extensions() -> None:
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Image(np.arange(8, dtype=np.int16).reshape(2, 2, 2), np.eye(4))
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"x" * 5_000))
    for content in (image.to_bytes(), gzip.compress(image.to_bytes())):
        np.testing.assert_array_equal(read_nifti(content).values.ravel(), np.arange(8))


def test_no_change_of_a_gzipped_file_goes_unnoticed() -> None:
    values = np.random.default_rng(0).integers(0, 900, (20, 20, 20)).astype(np.int16)
    content = nifti(values, zipped=True)
    expected, random = read_nifti(content).values, np.random.default_rng(1)
    for place in (*random.integers(30, len(content), 100).tolist(), *range(len(content) - 8, len(content))):
        altered = bytearray(content)
        altered[place] ^= 1 << int(random.integers(8))
        with pytest.raises(UnreadableError):
            read_nifti(bytes(altered))
    for missing in (1, 8):
        with pytest.raises(UnreadableError, match="cut off"):
            read_nifti(content[:-missing])
    np.testing.assert_array_equal(read_nifti(content + bytes(100)).values, expected)  # padding, which gzip passes over


def test_a_gzipped_file_may_have_several_members() -> None:
    values = np.random.default_rng(0).integers(0, 900, (40, 40, 40)).astype(np.int16)
    content = nifti(values)
    members = b"".join(gzip.compress(content[start : start + 5_000]) for start in range(0, len(content), 5_000))
    np.testing.assert_array_equal(read_nifti(members).values, read_nifti(content).values)
    with pytest.raises(UnreadableError, match=r"it is cut off: [\d,]+ of [\d,]+ bytes are there"):
        read_nifti(members[: len(members) // 2])


@pytest.mark.parametrize("zipped", [False, True])
def test_a_header_tells_the_size_and_spacing_along_the_turned_axes(zipped: bool) -> None:
    affine = np.array([[0, -2, 0, 3], [0, 0, 3, 1], [1, 0, 0, 2], [0, 0, 0, 1.0]])
    content = nifti(np.random.default_rng(0).random((40, 50, 60)).astype(np.float32), affine, zipped)
    volume = read_nifti(content)
    grid = read_grid(content[: 2**16])
    assert grid.shape == volume.values.shape == (50, 60, 40) and grid.spacing == volume.spacing == (2, 3, 1)
    with pytest.raises(UnreadableError, match="it is no NIfTI file"):
        read_grid(b"nothing")


def test_nothing_between_two_spacings_is_larger_than_both(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    along_an_axis = nifti_files._resample_axis

    def watch(values: np.ndarray, *arguments: Any) -> np.ndarray:
        sizes.append((resampled := along_an_axis(values, *arguments)).size)
        return resampled

    monkeypatch.setattr(nifti_files, "_resample_axis", watch)
    before = Voxels(np.zeros((4, 100, 100), np.float32), (25.0, 0.25, 0.25), np.eye(4))
    after = resample(before, (1, 1, 1), is_linear=True)
    assert after.values.shape == (100, 25, 25) and max(sizes) <= max(before.values.size, after.values.size)


@pytest.mark.parametrize(("bits", "packed"), [(2, bytes([0b00011011])), (4, bytes([0x01, 0x23])), (8, bytes([0, 1, 2, 3]))])
def test_grey_values_are_those_of_the_file_for_any_number_of_bits(bits: int, packed: bytes) -> None:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    size = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 1, bits, 0, 0, 0, 0))
    content = b"\x89PNG\r\n\x1a\n" + size + chunk(b"IDAT", zlib.compress(b"\0" + packed)) + chunk(b"IEND", b"")
    (values,), reasons = encode(mask((1, 4), classes=list("abcd"), values=(0, 1, 2, 3)), [content])
    assert reasons == [None] and values.tolist() == [[0, 1, 2, 3]]


def test_counted_reasons_have_no_numbers_of_a_row_and_no_texts() -> None:
    assert refusal_kind("m: mask cannot encode 90 bytes: it has 613x408 pixels, and not 256x256") == (
        "m: mask cannot encode a value: it has … pixels, and not …"
    )
    assert refusal_kind("m: mask cannot encode image 9 bytes, m 8 bytes: it has the value 37, which is none of [0, 255]") == (
        "m: mask cannot encode a value: it has the value …, which is none of [0, 255]"
    )
    assert refusal_kind("w: vocabulary cannot encode he ate 3 bytes: Jane Doe, 42") == "w: vocabulary cannot encode a value"
