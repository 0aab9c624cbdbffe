"""A few rows of the page about the data: values as the query gives them, pictures and sounds as they were encoded, and refused records.

The rows are those of the training split of smallest order, so that equal data give equal samples.
"""

import json
from base64 import b64decode, b64encode
from binascii import Error as NoBase64
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from pipelines.data.features.arrays import MAX_PIXELS, is_bytes
from pipelines.data.features.encoding import restore_encoder
from pipelines.data.features.picture_files import FAULTS
from pipelines.data.versions.data_profile import Survey, has_marks_only
from pipelines.data.versions.manifest import SPLITS
from pipelines.data.versions.schema import TensorColumn, schema_from_text
from pipelines.data.versions.versions import open_named_version, read_stored_columns
from pipelines.errors import DatasetError
from pipelines.report.figures.worst import as_picture

_MOST_COLUMNS, _MOST_CHARACTERS, _PIXELS = 12, 60, 96
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
"""Pillow's formats of refused pictures that are drawn."""


def describe_samples(survey: Survey) -> dict[str, Any]:
    """`columns`, and the texts of their values in some `rows`; and `pictures`, each with its `column`, `content` and `caption`."""
    count = survey.config.tracking.data_samples
    table = survey.samples.get(SPLITS[0])
    if not count or table is None:
        return {"columns": [], "rows": [], "pictures": []}
    raw = schema_from_text(survey.manifest.raw_schema)
    names = [
        sampled.name
        for sampled in table.schema
        if not sampled.name.startswith("__")
        and (sampled.name not in raw.names or not has_marks_only(sampled.type, raw.field(sampled.name).type))
    ][:_MOST_COLUMNS]
    rows = table.select(names).slice(0, count).to_pylist()
    pictures: list[dict[str, str]] = []
    with suppress(DatasetError, OSError):  # the version is on a disk that has gone, or is none of ETL's
        pictures = list(_pictures(survey, count))
    return {"columns": names, "rows": [[_text(row[name]) for name in names] for row in rows], "pictures": pictures}


def sample_record(survey: Survey, reason: str) -> dict[str, str]:
    """A refused record with the beginnings of its values, and its picture, if Pillow can draw one of its values."""
    if not survey.config.tracking.data_samples:
        return {"record": "", "picture": ""}
    record = survey.refused.get(reason, "")
    try:
        values = json.loads(record)
    except ValueError:
        values = record
    if not isinstance(values, dict):
        return {"record": _text(record, 300), "picture": ""}
    texts = [value for value in values.values() if isinstance(value, str) and len(value) > _MOST_CHARACTERS]
    shortened = {name: _text(value) if isinstance(value, str) else value for name, value in values.items()}
    return {"record": json.dumps(shortened, ensure_ascii=False)[:300], "picture": next(filter(None, map(_draw_file, texts)), "")}


def _pictures(survey: Survey, count: int) -> Iterator[dict[str, str]]:
    manifest = survey.manifest
    raw = schema_from_text(manifest.raw_schema)
    is_file_by_feature = {
        name: is_bytes(raw.field(fitted.inputs[0]).type)
        for name, fitted in manifest.encoders.items()
        if fitted.column.role == "feature"
        and fitted.inputs[0] in raw.names
        and _is_picture(fitted.column, raw.field(fitted.inputs[0]).type)
    }
    if not is_file_by_feature:
        return
    version = open_named_version(survey.config.dataset.path, manifest.version)
    targets = [name for name, fitted in manifest.encoders.items() if fitted.column.role == "target" and not fitted.column.shape]
    columns = [manifest.encoders[name].column for name in (*is_file_by_feature, *targets)]
    group = version.split_row_groups(SPLITS[0])[:1]
    for values in read_stored_columns(version.filesystem, version.root, group, columns):
        truths = {name: restore_encoder(manifest.encoders[name]) for name in targets}
        for row in range(min(count, len(values[columns[0].name]))):
            caption = ", ".join(f"{name} {_truth(encoder, values[name][row])}" for name, encoder in truths.items())
            for name, has_bytes in is_file_by_feature.items():
                pixels = as_picture(values[name][row], manifest.encoders[name].column.shape)
                pixels = pixels[::-1] if has_bytes and values[name].ndim == 3 else pixels  # a spectrogram, with low frequencies first
                picture = Image.fromarray((pixels * 255).astype(np.uint8))
                yield {"column": name, "content": _thumbnail(picture), "caption": caption or f"row {row}"}


def _is_picture(column: TensorColumn, kind: Any) -> bool:
    shape = column.shape
    return len(shape) in (2, 3) and sorted(shape)[-2] > 1 and (column.dtype == "uint8" or is_bytes(kind))


def _truth(encoder: Any, value: Any) -> str:
    return str(encoder.classes[int(value)]) if encoder.classes else _text(encoder.decode(np.array([value]))[0])


def _draw_file(text: str) -> str:
    """The thumbnail of a picture in base64; empty if it is none that Pillow knows, or too large."""
    try:
        with Image.open(BytesIO(b64decode(text, validate=True)), formats=_FORMATS) as picture:
            return "" if picture.width * picture.height > MAX_PIXELS else _thumbnail(picture.convert("RGB"))
    except (NoBase64, *FAULTS):
        return ""


def _thumbnail(picture: Image.Image) -> str:
    """A PNG of at most _PIXELS a side, in base64; small pictures grow in whole steps."""
    scale = _PIXELS / max(picture.size)
    scale = max(int(scale), 1) if scale >= 1 else scale
    size = [max(round(side * scale), 1) for side in picture.size]
    resized = picture.resize((size[0], size[1]), Image.Resampling.NEAREST if scale >= 1 else Image.Resampling.BILINEAR)
    file = BytesIO()
    resized.save(file, "PNG")
    return b64encode(file.getvalue()).decode()


def _text(value: Any, most: int = _MOST_CHARACTERS) -> str:
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= most else f"{text[:most]}…"
