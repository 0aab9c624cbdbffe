"""Raw rows that a written model is tried on: ordinary values of every column, those at the edges of its encoder, and refused ones."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.data.features import Encoders, restore_encoder
from pipelines.data.features.arrays import is_bytes
from pipelines.data.features.raw import is_list, is_text
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.serving.export.predict_program import json_value
from pipelines.serving.export.subject import Subject
from pipelines.serving.model.column_casts import element_type
from pipelines.serving.model.predictor import REFUSED, Predictor, feature_encoders

_LEAST_ROWS, _MOST_ROWS, _REFUSED_ROWS = 24, 96, 16
_NUMBERS = 12
"""Numbers over the range of a column, and as many as a normally distributed column has near its mean."""
_EDGES = 6
"""Numbers of one encoder that are tried on both sides."""
_TEXTS = ("It's 9.5 %, isn't it?", "def f(x):\n    return x + 1\n", "Straße ÉTÉ İΣ 数 ✓", "  two  spaces\tand a tab ", "unseen-α-value")


def example_rows(subject: Subject) -> pa.Table:
    """Some rows that the encoders accept, then some with one value that they refuse; always the same for the same model."""
    features = feature_encoders(subject.manifest)
    accepted, refused = dict[str, list[Any]](), list[tuple[str, Any]]()
    for field in subject.raw_schema:
        readers = {name: fitted for name, fitted in features.items() if field.name in fitted.inputs}
        values = dict[str, Any]()  # without repetitions, ordinary ones first; some cannot be hashed
        for candidate in _candidates(field.type, list(readers.values()), subject.manifest.profile.get(field.name, {})):
            try:
                value = pa.array([candidate], field.type)[0].as_py()
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError, ValueError):
                continue  # it does not fit the type
            values[repr(value)] = value
        is_accepted = {text: _accepts(readers, field, value) for text, value in values.items()}
        accepted[field.name] = [value for text, value in values.items() if is_accepted[text]]
        refused += [(field.name, value) for text, value in values.items() if not is_accepted[text]]
    usable = {name: values or [None] for name, values in accepted.items()}
    count = min(max(_LEAST_ROWS, *map(len, usable.values())), _MOST_ROWS)
    rows = [{name: values[(row + place) % len(values)] for place, (name, values) in enumerate(usable.items())} for row in range(count)]
    rows += [{**rows[0], name: value} for name, value in refused[:_REFUSED_ROWS]]
    return pa.table({field.name: pa.array([row[field.name] for row in rows], field.type) for field in subject.raw_schema})


def example_predictions(subject: Subject, rows: pa.Table) -> list[dict[str, Any]]:
    """Predictions of the model in MLflow for these rows, as JSON has them."""
    predictor = Predictor(subject.task.settings, subject.queried, subject.network.state_dict(), subject.decision)
    predicted = predictor.predict(rows).to_dict("records")
    return [{REFUSED: row[REFUSED]} if row[REFUSED] else {str(name): json_value(value) for name, value in row.items()} for row in predicted]


def _accepts(readers: Mapping[str, FittedEncoder], field: pa.Field, value: Any) -> bool:
    """Whether each encoder takes the value. An encoder of several columns gets it for all of them."""
    try:
        column = pa.array([value], field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return False
    for name, fitted in readers.items():
        _, reasons = Encoders({name: fitted}).encode(pa.table(dict.fromkeys(fitted.inputs, column)))
        if reasons[0].as_py() is not None:
            return False
    return True


def _candidates(kind: pa.DataType, readers: Sequence[FittedEncoder], profile: Mapping[str, Any]) -> Iterator[Any]:
    for fitted in readers:
        yield from _vocabulary_values(kind, fitted)
        if (example := restore_encoder(fitted).example(kind)) is not None:
            yield example
    if is_text(kind):
        yield from _TEXTS
        yield ""
    elif is_bytes(kind) or is_list(kind):
        yield from (array for fitted in readers for array in _arrays(kind, fitted))
    elif types.is_boolean(kind):
        yield from (True, False)
    elif types.is_temporal(kind):
        yield from (datetime(2001, 2, 3, 4, 5, 6), datetime(1970, 1, 1))
    else:
        yield from _numbers(kind, readers, profile)
    yield None


def _vocabulary_values(kind: pa.DataType, fitted: FittedEncoder) -> Iterator[Any]:
    """Frequent and rare values of a vocabulary, and texts or lists of its words."""
    values = fitted.state.get("values") or fitted.state.get("classes") or []
    for word in [*values[:3], *values[-2:]]:
        try:
            yield word if is_text(kind) else pa.array([word]).cast(kind)[0].as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    words = fitted.state.get("words", [])
    if words and is_text(kind):
        yield " ".join(words[:5])
        yield " ".join(words[-4:]).upper()
    elif words and is_list(kind):
        yield from (pa.array(part).cast(kind.value_type).to_pylist() for part in (words[:3], words[-70:]))


def _numbers(kind: pa.DataType, readers: Sequence[FittedEncoder], profile: Mapping[str, Any]) -> Iterator[Any]:
    """The points at which encoders decide, with their neighbours; the mean of the column, where trees often decide, its range, and numbers
    that it might have, as far as the profile says. Integers and decimals are rounded down."""
    numbers: list[float] = []
    for fitted in readers:
        points = fitted.state.get("edges") or fitted.state.get("points") or []
        for point in points[:: max(len(points) // _EDGES, 1)][:_EDGES]:
            numbers += [point, float(np.nextafter(point, -np.inf)), float(np.nextafter(point, np.inf))]
    numbers += [number for name in ("mean", "minimum", "maximum") if (number := profile.get(name)) is not None]
    draw = np.random.Generator(np.random.Philox(key=0))
    minimum, maximum = profile.get("minimum"), profile.get("maximum")
    if minimum is not None and maximum is not None:
        numbers += draw.uniform(minimum, maximum, _NUMBERS).tolist()
    if profile.get("deviation"):
        numbers += (profile["mean"] + profile["deviation"] * draw.normal(size=_NUMBERS)).tolist()
    for number in [*numbers, 0, 1, -1, 2.5]:
        if types.is_integer(kind):
            yield math.floor(number)
        else:
            yield Decimal(math.floor(number)) if types.is_decimal(kind) else float(number)


def _arrays(kind: pa.DataType, fitted: FittedEncoder) -> Iterator[Any]:
    """Arrays of the shape of a column, and one that is too short."""
    shape, encoder = fitted.column.shape, restore_encoder(fitted)
    if not shape or fitted.state.get("words"):
        return
    random = np.random.default_rng(0)
    for _ in range(3):
        numbers = random.integers(0, 17, shape) if types.is_integer(element_type(kind)) or is_bytes(kind) else random.normal(size=shape)
        if hasattr(encoder.settings, "mean"):
            numbers = encoder.decode(numbers)
        if is_bytes(kind):
            yield numbers.astype(np.uint8).tobytes()
        else:
            yield (numbers if is_list(kind.value_type) else numbers.ravel()).tolist()
    yield b"short" if is_bytes(kind) else [] if is_list(kind.value_type) else [1]
