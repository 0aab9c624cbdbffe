"""Reads Pascal VOC's XML files: the objects of an image, and boxes around them (Everingham et al. 2010)."""

from dataclasses import dataclass
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers.expat import ExpatError, ParserCreate

from pipelines.data.features.media.file_kinds import UnreadableError

MOST_BYTES = 4 * 2**20
_MOST_DEPTH = 16
_EDGES = ("xmin", "ymin", "xmax", "ymax")
Edges = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass(frozen=True)
class Box:
    """A box in pixels of its image, from 0 at the left and at the top."""

    name: str
    """Of its class."""
    edges: Edges


@dataclass(frozen=True)
class Annotation:
    size: tuple[int, int] | None
    """Width and height of the image, if the file names them."""
    boxes: list[Box]


def read_voc(content: bytes, encoding: str | None = None) -> Annotation:
    """The boxes of a file, whose pixels are counted from 1, and of which the last one is inside.

    `encoding` is that of a text which has been encoded again; by default, the file names its own. Raises UnreadableError if it is no such
    file, or if a box has no area.
    """
    root = _parse(content, encoding)
    if root.tag != "annotation":
        raise UnreadableError(f"its root is {root.tag[:40]}, and not annotation, so it is no VOC file")
    boxes = []
    for number, element in enumerate(root.findall("object"), 1):
        name = (element.findtext("name") or "").strip()
        low_x, low_y, high_x, high_y = (_number(element, f"bndbox/{edge}", f"object {number}") for edge in _EDGES)
        if not (low_x < high_x and low_y < high_y):
            raise UnreadableError(f"object {number} has no area: {low_x:g} to {high_x:g}, {low_y:g} to {high_y:g}")
        boxes.append(Box(name, (low_x - 1, low_y - 1, high_x, high_y)))
    size = root.find("size")
    if size is None:
        return Annotation(None, boxes)
    width, height = (int(_number(size, name, "size")) for name in ("width", "height"))
    return Annotation((width, height), boxes)


def _parse(content: bytes, encoding: str | None) -> Element:
    """The root of a document. One with a DTD, whose entities could grow without bounds or name other files, is refused."""
    if len(content) > MOST_BYTES:
        raise UnreadableError(f"it has {len(content):,} bytes, more than {MOST_BYTES:,}")
    builder, depth = TreeBuilder(), 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MOST_DEPTH:
            raise UnreadableError(f"its elements are more than {_MOST_DEPTH} deep")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refuse(*_: object) -> None:
        raise UnreadableError("it has a DTD, which VOC files have not")

    parser = ParserCreate(encoding)
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, builder.data
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except UnreadableError:
        raise
    except (ExpatError, LookupError, ValueError) as error:  # the last two of an unknown encoding
        raise UnreadableError("it is no XML file, or is damaged") from error
    return builder.close()


def _number(element: Element, path: str, where: str) -> float:
    text = element.findtext(path)
    try:
        return _finite(float(text or ""))
    except ValueError as error:
        raise UnreadableError(f"{where} has no number {path}") from error


def _finite(number: float) -> float:
    if not abs(number) < 1e9:
        raise ValueError("it is not finite")
    return number
