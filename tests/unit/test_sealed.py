"""No byte of what a version says of itself can change without being noticed."""

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from versions import write_version

from pipelines.data.versions.schema import schema_to_text
from pipelines.data.versions.storage import seal, unseal
from pipelines.data.versions.versions import open_version
from pipelines.errors import CorruptError

ALTERED = 2_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a version whose manifest has something in every field."""
    rows = {"x": np.linspace(0, 1, 500, dtype=np.float32), "label": np.arange(500)}
    version = write_version(
        tmp_path_factory.mktemp("sealed"),
        {"train": [rows, rows], "validation": [rows]},
        row_group_bytes=2**10,
        identity={"source": {"query": "SELECT * FROM people"}, "dataset": {"split": {"train": 0.8}}},
        sources={"people": {"files": 3, "bytes": 5_300_000, "digest": "5b" * 32}},
        sources_checksum="sha256:" + "b5" * 32,
        raw_schema=schema_to_text(pa.schema([("x", pa.float32()), ("label", pa.int64())])),
        rows_parsed=1_512,
        quarantined={"plausible age": 12},
        profile={"x": {"mean": 0.5, "minimum": 0.0, "maximum": 1.0}},
        warnings=("LIMIT without an order",),
        versions={"spark": "4.1.0"},
        run_id="0f" * 16,
    )
    return Path(version.root)


def flip(text: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(text))
    return text[:place] + bytes([text[place] ^ 1 << chance.randrange(8)]) + text[place + 1 :]


def set_byte(text: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(text))
    return text[:place] + bytes([chance.choice(b' \n\t0159"{}[],:\0\xff')]) + text[place + 1 :]


def truncate(text: bytes, chance: random.Random) -> bytes:
    return text[: chance.randrange(len(text))]


def cut_out(text: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(text))
    return text[:place] + text[place + chance.choice([1, 8, 64]) :]


def put_in(text: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(text) + 1)
    return text[:place] + chance.choice([b" ", b"\n", b"0", b"[" * 100_000, b'{"a":' * 100_000, chance.randbytes(8)]) + text[place:]


BYTES = (flip, flip, flip, set_byte, truncate, cut_out, put_in)


def other_type(text: bytes, chance: random.Random) -> bytes:
    """A number becomes a string, or a string a number; the text stays what Python writes."""
    values = json.loads(text)
    places = [(parent, key) for parent, key in _places(values) if isinstance(parent[key], int | float | str)]
    parent, key = chance.choice(places)
    parent[key] = len(parent[key]) if isinstance(parent[key], str) else str(parent[key])
    return json.dumps(values, indent=1).encode() + b"\n"


def without(text: bytes, chance: random.Random) -> bytes:
    values = json.loads(text)
    parent, key = chance.choice(list(_places(values)))
    del parent[key]
    return json.dumps(values, indent=1).encode() + b"\n"


def again(text: bytes, chance: random.Random) -> bytes:
    """A key stands twice, and the last value counts."""
    line = chance.choice([line for line in text.splitlines(keepends=True) if b'": ' in line and line.rstrip().endswith(b",")])
    return text.replace(line, line + line, 1)


def _places(values: dict | list) -> list[tuple]:
    """Every (container, key) of a JSON value."""
    places: list[tuple] = []
    for key in values if isinstance(values, dict) else range(len(values)):
        places.append((values, key))
        if isinstance(values[key], dict | list):
            places += _places(values[key])
    return places


def unnoticed_changes(folder: Path, file: Path, alterations: tuple[Callable[[bytes, random.Random], bytes], ...], times: int) -> list[str]:
    """What altered texts of `file` led to, where it was not an error of ours. The file is as before afterwards."""
    text, accepted = file.read_bytes(), []
    for number in range(times):
        chance = random.Random(number)
        alter = chance.choice(alterations)
        altered = alter(text, chance)
        if altered == text:
            continue
        file.write_bytes(altered)
        try:
            open_version(str(folder))
            accepted.append(f"{number}, {alter.__name__}: opened")
        except CorruptError:
            pass
        except Exception as error:  # whatever else is raised is what is looked for
            accepted.append(f"{number}, {alter.__name__}: {type(error).__name__}: {error}")
    file.write_bytes(text)
    return accepted


def test_p8_no_alteration_of_a_manifest_goes_unnoticed(folder: Path) -> None:
    assert unnoticed_changes(folder, folder / "manifest.json", (*BYTES, other_type, without, again), ALTERED) == []
    assert open_version(str(folder)).manifest.run_id == "0f" * 16


def test_p8_no_alteration_of_the_index_of_row_groups_goes_unnoticed(folder: Path) -> None:
    assert unnoticed_changes(folder, folder / "row_groups-a.parquet", BYTES, ALTERED) == []


def test_a_seal_is_json_for_everybody_and_covers_every_bit() -> None:
    values = {"name": "adult", "rows": [1, 2.5, None], "checksums": "sha256:…"}
    text = seal(values)
    assert unseal(text) == (values, True)
    assert list(json.loads(text)) == [*values, "checksum"]
    for bit in range(8 * len(text)):
        altered = bytearray(text)
        altered[bit // 8] ^= 1 << bit % 8
        with suppress(ValueError):
            assert not unseal(bytes(altered))[1]


def test_a_seal_of_other_bytes_does_not_fit() -> None:
    first, other = seal({"rows": 1}), seal({"rows": 2})
    with pytest.raises(ValueError, match=r"its checksum is not that of its bytes"):
        unseal(first.partition(b",")[0] + b"," + other.partition(b",")[2])
