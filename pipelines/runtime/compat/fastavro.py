"""The readers of logical types, by which fastavro makes dates and times of numbers; a value beyond Python's years is an error there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def times_as_numbers() -> Iterator[None]:
    """Reads dates and times as the numbers that files have."""
    from fastavro import read  # noqa: PLC0415, only who reads Avro has it installed

    readers: dict[str, Any] = read.LOGICAL_READERS
    earlier = {name: function for name, function in readers.items() if "time" in name or "date" in name}
    readers.update(dict.fromkeys(earlier, _keep))
    try:
        yield
    finally:
        readers.update(earlier)


def _keep(value: Any, *_: Any) -> Any:
    return value
