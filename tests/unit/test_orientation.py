"""Photographs that are stored turned: every reader takes them as viewers show them, with their boxes and masks."""

from io import BytesIO
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps
import pyarrow as pa
import pytest

from pipelines.applications.detection.encoders import Boxes
from pipelines.applications.detection.settings import BoxesSettings
from pipelines.applications.segmentation.encoders import Mask
from pipelines.applications.segmentation.settings import MaskSettings, VolumeSettings
from pipelines.config.features import encoder_settings
from pipelines.config.features.arrays import ImageSettings
from pipelines.config.features.base import EncoderSettings
from pipelines.data.features.arrays import Image
from pipelines.data.features.media_files import orientation, turn
from pipelines.data.versions.schema import Role, TensorColumn, to_numpy
from pipelines.init.media.images import _decode

ORIENTATIONS = range(1, 9)
TAG = 274
RANDOM = np.random.default_rng(5)
PHOTOGRAPH = RANDOM.integers(0, 256, (4, 6, 3)).astype(np.uint8)
"""Stored 6 pixels wide and 4 high."""
CLASSES = RANDOM.integers(0, 3, (4, 6)).astype(np.uint8)


def file(pixels: np.ndarray, number: Any = None, form: str = "PNG") -> bytes:
    exif = PIL.Image.Exif()
    if number is not None:
        exif[TAG] = number
    content = BytesIO()
    PIL.Image.fromarray(pixels).save(content, form, exif=exif)
    return content.getvalue()


def viewer_pixels(content: bytes) -> np.ndarray:
    """The pixels that Pillow itself shows."""
    picture = PIL.ImageOps.exif_transpose(PIL.Image.open(BytesIO(content)))
    assert picture is not None
    return np.asarray(picture)


def encode(encoder: Any, *inputs: Any) -> tuple[np.ndarray | None, str]:
    """The value of a row, or None and the reason."""
    values = encoder.encode(*(pa.array([value]) for value in inputs))
    role: Role = "target"
    column: TensorColumn = encoder.column("it", role)
    return (None, encoder.fault(*inputs)) if values.null_count else (to_numpy(column, values)[0], "")


@pytest.mark.parametrize("number", ORIENTATIONS)
@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_an_image_is_what_a_viewer_shows_in_etl_and_in_drafts(number: int, form: str) -> None:
    content = file(PHOTOGRAPH, number, form)
    expected = viewer_pixels(content).transpose(2, 0, 1)
    settings = ImageSettings(shape=expected.shape)
    encoded, _ = encode(Image(settings, {}), content)
    np.testing.assert_array_equal(encoded, expected)
    assert _decode(content, True) == (expected.shape[:0:-1], "RGB")


def test_a_photograph_is_turned_before_it_is_scaled() -> None:
    tall = encode(Image(ImageSettings(shape=(3, 3, 2)), {}), file(PHOTOGRAPH, 6))[0]
    upright = encode(Image(ImageSettings(shape=(3, 3, 2)), {}), file(np.ascontiguousarray(turn(PHOTOGRAPH, 6))))[0]
    np.testing.assert_array_equal(tall, upright)


def test_grey_of_16_bits_is_turned() -> None:
    values = RANDOM.integers(0, 2**16, (4, 6)).astype(np.uint16)
    encoded, _ = encode(Image(ImageSettings(shape=(1, 6, 4)), {}), file(values, 8))
    np.testing.assert_array_equal(encoded, [turn(values >> 8, 8)])


@pytest.mark.parametrize("number", [0, 9, 300])
def test_a_damaged_tag_turns_nothing(number: Any) -> None:
    assert orientation(PIL.Image.open(BytesIO(file(PHOTOGRAPH, number)))) == 1
    damaged = BytesIO()
    PIL.Image.fromarray(PHOTOGRAPH).save(damaged, "JPEG", exif=b"Exif\x00\x00nothing of the kind")
    plain = file(PHOTOGRAPH, form="JPEG")
    encoder = Image(ImageSettings(shape=(3, 4, 6)), {})
    np.testing.assert_array_equal(encode(encoder, damaged.getvalue())[0], encode(encoder, plain)[0])


def mask(**changes: Any) -> Mask:
    return Mask(MaskSettings(**{"shape": (6, 4), "classes": ["a", "b", "c"], "image": "image", **changes}), {})


@pytest.mark.parametrize("number", range(5, 9))
def test_the_size_of_a_mask_tells_which_pixels_it_is_for(number: int) -> None:
    image, expected = file(PHOTOGRAPH, number), turn(CLASSES, number)
    for content in (file(CLASSES), file(np.ascontiguousarray(expected)), file(CLASSES, number)):
        np.testing.assert_array_equal(encode(mask(), content, image)[0], expected)
    _, reason = encode(mask(), file(np.zeros((5, 5), np.uint8)), image)
    assert reason == "it has 5x5 pixels, but its image 4x6"


@pytest.mark.parametrize(("size", "number"), [*(((4, 6), number) for number in (2, 3, 4)), *(((6, 6), number) for number in range(2, 9))])
def test_a_mask_of_equal_size_either_way_is_refused(size: tuple[int, int], number: int) -> None:
    classes = RANDOM.integers(0, 3, size).astype(np.uint8)
    image = file(np.zeros((*size, 3), np.uint8), number)
    value, reason = encode(mask(shape=size), file(classes), image)
    assert value is None
    assert f"EXIF orientation {number}" in reason and "store the image upright" in reason
    np.testing.assert_array_equal(encode(mask(shape=size), file(classes, number), image)[0], turn(classes, number))
    np.testing.assert_array_equal(encode(mask(shape=size, image=""), file(classes))[0], classes)


def boxes(**changes: Any) -> Boxes:
    return Boxes(BoxesSettings(**{"shape": (6, 4), "classes": ["cat"], "most": 2, "image": "image", **changes}), {})


def voc(edges: tuple[int, int, int, int], size: tuple[int, int] | None) -> bytes:
    """A box in pixels from 0; VOC's are counted from 1."""
    corners = zip(("xmin", "ymin", "xmax", "ymax"), (edges[0] + 1, edges[1] + 1, *edges[2:]), strict=True)
    size_text = f"<size><width>{size[0]}</width><height>{size[1]}</height></size>" if size else ""
    box = "".join(f"<{name}>{value}</{name}>" for name, value in corners)
    return f"<annotation>{size_text}<object><name>cat</name><bndbox>{box}</bndbox></object></annotation>".encode()


def struct(edges: tuple[int, ...], size: tuple[int, int] | None) -> list[dict[str, Any]]:
    named = dict(zip(("left", "top", "right", "bottom"), map(float, edges), strict=True))
    return [{"class": "cat", **named, **({"image_width": size[0], "image_height": size[1]} if size else {})}]


def box_picture(edges: Any, size: tuple[int, int]) -> np.ndarray:
    """A picture of the box, shape (height, width)."""
    pixels = np.zeros(size[::-1], np.uint8)
    low_x, low_y, high_x, high_y = map(int, edges)
    pixels[low_y:high_y, low_x:high_x] = 1
    return pixels


@pytest.mark.parametrize("number", range(5, 9))
@pytest.mark.parametrize("annotate", [voc, struct])
def test_the_size_in_an_annotation_tells_which_pixels_its_boxes_are_for(number: int, annotate: Any) -> None:
    image, edges = file(PHOTOGRAPH, number), (1, 0, 3, 2)
    value, _ = encode(boxes(), annotate(edges, (6, 4)), image)
    assert value is not None
    np.testing.assert_array_equal(box_picture(value[0, 1:], (4, 6)), turn(box_picture(edges, (6, 4)), number))
    value, _ = encode(boxes(), annotate(edges, (4, 6)), image)
    assert value is not None
    np.testing.assert_array_equal(value[0, 1:], edges)


@pytest.mark.parametrize("annotate", [voc, struct])
def test_boxes_are_refused_where_no_size_tells(annotate: Any) -> None:
    for size, number in ((None, 6), ((6, 4), 3)):
        value, reason = encode(boxes(), annotate((1, 0, 3, 2), size), file(PHOTOGRAPH, number))
        assert value is None
        assert f"EXIF orientation {number}" in reason and "give it the size of the image that it was drawn on" in reason
    assert "is for 5x5 pixels, but its image has 4x6" in encode(boxes(), annotate((1, 0, 3, 2), (5, 5)), file(PHOTOGRAPH, 6))[1]


def test_an_image_without_objects_needs_no_size() -> None:
    value, reason = encode(boxes(), b"<annotation></annotation>", file(PHOTOGRAPH, 6))
    assert value is not None, reason


def test_boxes_of_one_image_are_drawn_on_one_size() -> None:
    values = struct((0, 0, 1, 1), (6, 4)) + struct((0, 0, 1, 1), (4, 6))
    assert encode(boxes(), values, file(PHOTOGRAPH, 6))[1] == "its boxes are for images of 4x6 and 6x4 pixels"


@pytest.mark.parametrize(
    ("settings", "decoders"),
    [
        (ImageSettings(shape=(1, 4, 4)), ("pillow",)),
        (MaskSettings(shape=(4, 4), classes=("a", "b")), ("pillow",)),
        (MaskSettings(shape=(4, 4, 4), classes=("a", "b")), ("nibabel",)),
        (VolumeSettings(shape=(4, 4, 4)), ("nibabel",)),
        (BoxesSettings(shape=(4, 4), classes=("a",), image="image"), ("pillow",)),
        (BoxesSettings(shape=(4, 4), classes=("a",)), ()),
        (encoder_settings({"encoder": "standardize"}), ()),
    ],
)
def test_the_decoder_of_an_encoder_names_its_datasets(settings: EncoderSettings, decoders: tuple[str, ...]) -> None:
    assert settings.encodes_with == decoders
