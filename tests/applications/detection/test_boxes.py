"""The encoder of boxes: which files and arrays it takes, what it refuses and why, and how much a file may ask for."""

from io import BytesIO
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pytest
from fitting import fit

from pipelines.applications.detection import encoders
from pipelines.applications.detection.encoders import Boxes
from pipelines.applications.detection.settings import BoxesSettings
from pipelines.data.features import Encoders, refusal_kind
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import to_numpy
from pipelines.errors import ConfigError

STRUCTS = pa.list_(
    pa.struct({"class": pa.string(), "left": pa.float64(), "top": pa.float64(), "right": pa.float64(), "bottom": pa.float64()})
)
Edges = tuple[float, float, float, float]


def settings(**changes: Any) -> BoxesSettings:
    return BoxesSettings(**{"shape": (30, 40), "classes": ["cat", "dog"], "most": 3, **changes})


def encode(chosen: BoxesSettings, *columns: list[Any], kind: pa.DataType | None = None) -> tuple[list[Any], list[str | None]]:
    """The boxes of the rows without padding, None for a refused row, and the reasons."""
    encoder, inputs = Boxes(chosen, {}), chosen.inputs("it")
    fitted = FittedEncoder(feature=chosen.model_dump(mode="json"), inputs=inputs, state={}, column=encoder.column("it", "target"))
    kinds = [kind or pa.binary(), pa.binary()]
    table = pa.table({name: pa.array(values, kinds[place]) for place, (name, values) in enumerate(zip(inputs, columns, strict=True))})
    encoded, reasons = Encoders({"it": fitted}).encode(table)
    values = iter(to_numpy(fitted.column, encoded["it"].combine_chunks()) if len(encoded) else ())
    rows = [next(values) if reason is None else None for reason in reasons.to_pylist()]
    return [None if row is None else row[row[:, 0] >= 0].tolist() for row in rows], reasons.to_pylist()


def jpeg(width: int, height: int) -> bytes:
    file = BytesIO()
    PIL.Image.new("RGB", (width, height)).save(file, "JPEG")
    return file.getvalue()


def xml(*boxes: tuple[str, Edges], size: tuple[int, int] | None = (80, 60), head: str = "") -> bytes:
    """A VOC file."""
    size_text = f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>" if size else ""
    objects = [
        f"<object><name>{name}</name><bndbox>"
        + "".join(f"<{edge}>{value}</{edge}>" for edge, value in zip(("xmin", "ymin", "xmax", "ymax"), edges, strict=True))
        + "</bndbox></object>"
        for name, edges in boxes
    ]
    return f"{head}<annotation>{size_text}{''.join(objects)}</annotation>".encode()


def structs(*boxes: tuple[str | None, Edges]) -> list[dict[str, Any]]:
    return [{"class": name, **dict(zip(("left", "top", "right", "bottom"), edges, strict=True))} for name, edges in boxes]


def test_boxes_of_a_file_are_counted_from_its_first_pixel_and_scaled_to_the_shape() -> None:
    file = xml(("dog", (1, 1, 80, 60)), ("cat", (11, 21, 30, 40)))
    expected = [[0, 5, 10, 15, 20], [1, 0, 0, 40, 30]]
    assert encode(settings(), [file])[0] == [expected]
    assert encode(settings(), [file.decode()], kind=pa.string())[0] == [expected]
    assert encode(settings(image="picture"), [file], [jpeg(80, 60)])[0] == [expected]
    assert encode(settings(image="picture"), [xml(("dog", (1, 1, 80, 60)), size=None)], [jpeg(80, 60)])[0] == [expected[1:]]


def test_arrays_of_structs_are_measured_in_pixels_of_the_image() -> None:
    boxes = structs(("cat", (10, 20, 30, 40)), ("dog", (0, 0, 40, 30)))
    assert encode(settings(shape=(60, 80)), [boxes], kind=STRUCTS)[0] == [[[0, 10, 20, 30, 40], [1, 0, 0, 40, 30]]]
    assert encode(settings(image="picture"), [boxes], [jpeg(80, 60)], kind=STRUCTS)[0] == [[[0, 5, 10, 15, 20], [1, 0, 0, 20, 15]]]


def test_the_order_of_a_row_s_boxes_is_their_own() -> None:
    boxes = structs(("dog", (0, 0, 4, 3)), ("cat", (5, 5, 9, 9)), ("cat", (0, 0, 9, 9)))
    (first, second), _ = encode(settings(), [boxes, boxes[::-1]], kind=STRUCTS)
    assert first == second and [box[0] for box in first] == [0, 0, 1]


def test_an_image_may_have_no_boxes_and_free_places_have_no_class() -> None:
    assert encode(settings(), [xml()])[0] == [[]]
    assert encode(settings(), [[]], kind=STRUCTS)[0] == [[]]
    encoder = Boxes(settings(), {})
    column = encoder.column("it", "target")
    (row,) = to_numpy(column, encoder.encode(pa.array([xml(("dog", (1, 1, 80, 60)))])))
    assert row[:, 0].tolist() == [1, -1, -1] and not row[1:, 1:].any()
    assert column.shape == (3, 5) and encoder.classes == ("cat", "dog")


def test_a_box_is_cut_off_within_a_pixel_of_its_image() -> None:
    assert encode(settings(), [xml(("cat", (0, 0, 81, 61)))])[0] == [[[0, 0, 0, 40, 30]]]
    (refused,), (reason,) = encode(settings(), [xml(("cat", (1, 1, 81.5, 60)))])
    assert refused is None and "a box lies outside its image of 80x60 pixels: 0 to 81.5, 0 to 60" in str(reason)


BAD_FILES: dict[str, tuple[bytes | None, str]] = {
    "no area": (xml(("cat", (5, 5, 5, 9))), ": object 1 has no area: 5 to 5, 5 to 9"),
    "turned": (xml(("cat", (9, 5, 5, 9))), ": object 1 has no area: 9 to 5, 5 to 9"),
    "an unknown class": (xml(("cow", (1, 1, 5, 9))), ": the class cow is none of ['cat', 'dog']"),
    "no class": (xml(("", (1, 1, 5, 9))), ": the class without a name is none of ['cat', 'dog']"),
    "outside": (xml(("cat", (-9, 1, 5, 9))), ": a box lies outside its image of 80x60 pixels: -10 to 5, 0 to 9"),
    "all outside": (xml(("cat", (81, 1, 81, 9)), size=(80, 60)), ": object 1 has no area: 81 to 81, 1 to 9"),
    "beyond the edge": (xml(("cat", (80.9, 1, 80.95, 9)), size=(79, 60)), ": a box lies outside its image of 79x60 pixels"),
    "too many": (xml(*[("cat", (1, 1, 5, 9))] * 4), ": it has 4 boxes, and there is room for 3; raise most"),
    "no number": (xml(("cat", (1, 1, "five", 9))), ": object 1 has no number bndbox/xmax"),  # type: ignore[arg-type]
    "NaN": (xml(("cat", (1, 1, float("nan"), 9))), ": object 1 has no number bndbox/xmax"),
    "infinity": (xml(("cat", (1, 1, float("inf"), 9))), ": object 1 has no number bndbox/xmax"),
    "no box": (b"<annotation><object><name>cat</name></object></annotation>", ": object 1 has no number bndbox/xmin"),
    "no pixels": (xml(size=(0, 60)), ": it is for 0x60 pixels"),
    "another root": (b"<kml></kml>", ": its root is kml, and not annotation, so it is no VOC file"),
    "cut off": (xml(("cat", (1, 1, 5, 9)))[:-9], ": it is no XML file, or is damaged"),
    "bytes": (b"\xff\xd8\xff", ": it is no XML file, or is damaged"),
    "nothing": (b"", ": it is no XML file, or is damaged"),
    "an unknown encoding": (xml(head="<?xml version='1.0' encoding='none'?>"), ": it is no XML file, or is damaged"),
    "deep": (b"<a>" * 400 + b"</a>" * 400, ": its elements are more than 16 deep"),
    "entities": (
        xml(head='<!DOCTYPE annotation [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]>'),
        ": it has a DTD, which VOC files have not",
    ),
    "a file by an entity": (
        xml(head='<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]>'),
        ": it has a DTD, which VOC files have not",
    ),
    "NULL": (None, ""),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_cannot_be_read_is_refused_with_the_reason(name: str) -> None:
    content, fault = BAD_FILES[name]
    (good, bad), (no_reason, reason) = encode(settings(), [xml(), content])
    assert good == [] and no_reason is None and bad is None
    value = "NULL" if content is None else f"{len(content)} bytes"
    assert str(reason).startswith(f"it: boxes cannot encode {value}{fault}")
    if content is None:
        assert reason == "it: boxes cannot encode NULL"


def test_a_dtd_in_another_encoding_is_refused_too() -> None:
    document = '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE annotation [<!ENTITY a "b">]><annotation>&a;</annotation>'
    _, (reason,) = encode(settings(), [document.encode("utf-16")])
    assert "it has a DTD" in str(reason)


def test_no_more_is_read_than_a_file_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "MOST_BYTES", 100)
    _, (reason,) = encode(settings(), [xml(("cat", (1, 1, 5, 9)))])
    assert "bytes, more than 100" in str(reason)


BAD_STRUCTS: dict[str, tuple[Any, str]] = {
    "no area": (structs(("cat", (5, 5, 5, 9))), "box 1 has no area: 5 to 5, 5 to 9"),
    "outside": (structs(("cat", (0, 0, 42, 9))), "a box lies outside its image of 40x30 pixels: 0 to 42, 0 to 9"),
    "no class": (structs(("cat", (0, 0, 4, 9)), (None, (0, 0, 4, 9))), "box 2 lacks its class, or a number"),
    "NaN": (structs(("cat", (0, 0, float("nan"), 9))), "box 1 lacks its class, or a number"),
    "no number": (structs(("cat", (0, 0, None, 9))), "box 1 lacks its class, or a number"),  # type: ignore[arg-type]
    "no box": ([None], "box 1 lacks its class, or a number"),
}


@pytest.mark.parametrize("name", BAD_STRUCTS)
def test_an_array_with_a_fault_is_refused_with_the_reason(name: str) -> None:
    value, fault = BAD_STRUCTS[name]
    (good, bad), (_, reason) = encode(settings(), [[], value], kind=STRUCTS)
    assert good == [] and bad is None and str(reason).endswith(fault)


def test_a_file_for_an_image_of_another_size_is_refused() -> None:
    chosen = settings(image="picture")
    (_, bad, unreadable, missing), (no_reason, *reasons) = encode(
        chosen, [xml(), xml(), xml(), xml()], [jpeg(80, 60), jpeg(60, 80), b"nothing", None]
    )
    assert no_reason is None and bad is unreadable is missing is None
    assert str(reasons[0]).endswith("it is for 80x60 pixels, but its image has 60x80")
    assert str(reasons[1]).endswith("its image is of an unknown kind (first bytes 110, 111, 116, 104), not PNG or JPEG")
    assert str(reasons[2]).endswith("its image is empty, not PNG or JPEG")


def test_an_image_that_is_no_file_is_a_fault_of_the_row() -> None:
    for image in ("a.jpg", [1, 2]):
        assert Boxes(settings(image="picture"), {}).fault(xml(), image) == "its image is no PNG or JPEG file, as bytes"


def test_a_text_has_been_decoded_whatever_encoding_it_declares() -> None:
    text = xml(("café", (1, 1, 9, 9)), head="<?xml version='1.0' encoding='ISO-8859-1'?>").decode()
    (row,), reasons = encode(settings(classes=["café"]), [text], kind=pa.string())
    assert len(row) == 1 and reasons == [None]


def test_a_box_whose_area_is_lost_in_float32_is_refused() -> None:
    (good, bad), (_, reason) = encode(settings(), [[], structs(("cat", (3.0, 1.0, 3.0 + 1e-9, 9.0)))], kind=STRUCTS)
    assert good == [] and bad is None and str(reason).endswith("a box has no area")


def test_reasons_are_counted_without_the_numbers_of_a_row() -> None:
    _, reasons = encode(settings(), [xml(("cat", (5, 5, 5, number))) for number in (9, 10)])
    assert {refusal_kind(str(reason)) for reason in reasons} == {"it: boxes cannot encode a value: object … has no area: … to …, … to …"}


@pytest.mark.parametrize("kind", [pa.int64(), pa.list_(pa.float64()), pa.list_(pa.struct({"class": pa.string(), "left": pa.float64()}))])
def test_other_columns_are_refused_before_a_row_is_read(kind: pa.DataType) -> None:
    raw = pa.table({"boxes": pa.array([None], kind), "x": pa.array([1.0])})
    with pytest.raises(ConfigError, match="it takes VOC files, as bytes or text, or arrays of structs"):
        fit({"x": "identity"}, {"boxes": {"encoder": "boxes", "shape": [3, 4], "classes": ["a"]}}, raw)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ["a", "a"]}, "name each class once"),
        ({"classes": ["Car", "car"]}, "name each class once"),
        ({"classes": []}, "classes"),
        ({"most": 0}, "most"),
    ],
)
def test_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(**changes)


def test_numbers_are_float32_of_the_declared_room() -> None:
    assert Boxes(settings(most=7), {}).encode(pa.array([xml()])).type.byte_width == 7 * 5 * np.dtype(np.float32).itemsize
