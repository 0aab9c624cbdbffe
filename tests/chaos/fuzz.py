"""A committed version, altered: every read ends in an error of ours or in the right rows.

Alterations are of files, as disks, networks and people make them: bits and bytes changed, pieces cut off, added, moved or
zeroed, files gone, exchanged or of another version, and values of the manifest edited.
"""

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from versions import write_version

from pipelines.data.loader import Loader, Order
from pipelines.data.versions.storage import seal, unseal
from pipelines.data.versions.versions import open_version
from pipelines.errors import LockstepError

ROWS = {"train": (900, 700), "validation": (300,)}
Columns = dict[str, np.ndarray]


def random_parts(seed: int) -> dict[str, list[Columns]]:
    """Splits of parts, of every kind of column."""
    random_numbers = np.random.default_rng(seed)

    def part(rows: int) -> Columns:
        return {
            "age": random_numbers.standard_normal(rows).astype("float32"),
            "city": random_numbers.integers(0, 50, rows).astype("int32"),
            "image": random_numbers.integers(0, 256, (rows, 4, 4), np.uint8),
            "label": random_numbers.integers(0, 2, rows).astype("uint8"),
        }

    return {split: [part(rows) for rows in parts] for split, parts in ROWS.items()}


def write(folder: Path, seed: int) -> None:
    write_version(folder, random_parts(seed), cardinality={"city": 50, "label": 2}, row_group_bytes=2**12)


def original_rows(seed: int) -> dict[str, list[tuple]]:
    """Every split's rows, sorted."""
    return {split: _sort_rows(parts) for split, parts in random_parts(seed).items()}


def read(folder: Path) -> dict[str, list[tuple]]:
    """Every split's rows, as the loader gives them, sorted."""
    version = open_version(str(folder))
    rows: dict[str, list[tuple]] = {}
    for split in ROWS:
        order = Order(shards=4, global_batch=128, remainder="keep")
        rows[split] = _sort_rows([{name: values.numpy() for name, values in batch.items()} for batch in Loader(version, split, order)])
    return rows


def _sort_rows(parts: list[Columns]) -> list[tuple]:
    """Return the rows as bytes, sorted."""
    columns = [np.concatenate([part[name] for part in parts]) for name in sorted(parts[0])]
    return sorted(zip(*([values.tobytes() for values in column] for column in columns), strict=True))


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def flip_bit(path: Path, chance: random.Random) -> None:
    _change(path, lambda content: _change_byte(content, chance, lambda byte: byte ^ 1 << chance.randrange(8)))


def set_bytes(path: Path, chance: random.Random) -> None:
    def change(content: bytearray) -> bytearray:
        for _ in range(chance.choice([1, 2, 8, 64])):
            content = _change_byte(content, chance, lambda _: chance.choice([0, 255, chance.randrange(256)]))
        return content

    _change(path, change)


def truncate(path: Path, chance: random.Random) -> None:
    _change(path, lambda content: content[: chance.randrange(len(content))])


def add(path: Path, chance: random.Random) -> None:
    _change(path, lambda content: content + chance.randbytes(chance.choice([1, 8, 4_096])))


def zero(path: Path, chance: random.Random) -> None:
    """A block that a disk never wrote."""

    def change(content: bytearray) -> bytearray:
        start = chance.randrange(len(content))
        length = min(chance.choice([16, 512, 4_096]), len(content) - start)
        content[start : start + length] = bytes(length)
        return content

    _change(path, change)


def cut_out(path: Path, chance: random.Random) -> None:
    def change(content: bytearray) -> bytearray:
        start = chance.randrange(len(content))
        del content[start : start + chance.choice([1, 8, 512])]
        return content

    _change(path, change)


def exchange(path: Path, chance: random.Random) -> None:
    """Swap the file with another one of the version."""
    other = chance.choice([file for file in files(_root(path)) if file != path])
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


def take_from_other_version(path: Path, chance: random.Random) -> None:
    """Put in the file of this name from a version with other rows, written by the same code."""
    path.write_bytes((_root(path).parent / "other" / path.relative_to(_root(path))).read_bytes())


def delete(path: Path, chance: random.Random) -> None:
    path.unlink()


def empty(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"")


def edit_manifest(path: Path, chance: random.Random) -> None:
    """One value of the JSON becomes another one, or one key another one; the seal stays, or is made anew."""
    manifest = next(_root(path).rglob("manifest.json"))
    values, _ = unseal(manifest.read_bytes())
    place: Any = values
    while True:
        key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if isinstance(place[key], dict | list) and place[key] and chance.random() < 0.8:
            place = place[key]
            continue
        if isinstance(place, dict) and chance.random() < 0.2:
            place[f"{key}_"] = place.pop(key)
        else:
            place[key] = _other_value(place[key], chance)
        break
    manifest.write_bytes(chance.choice([json.dumps(values).encode(), seal(values)]))


def _other_value(value: Any, chance: random.Random) -> Any:
    candidates: list[Any] = [None, -1, 0, 2**40, "", "x", "../..", [], {}, True, 1.5, float("nan")]
    if isinstance(value, int):
        candidates += [value + 1, value - 1, value * 2] * 3
    if isinstance(value, str) and value:
        candidates += [value[:-1], value[::-1], value + value, value.upper()] * 2
    return chance.choice([other for other in candidates if other != value or other is not value])


def _root(path: Path) -> Path:
    return next(parent for parent in path.parents if parent.name == "altered")


def _change(path: Path, change: Callable[[bytearray], bytearray]) -> None:
    content = path.read_bytes()
    path.write_bytes(change(bytearray(content)) if content else b"\0")


def _change_byte(content: bytearray, chance: random.Random, change: Callable[[int], int]) -> bytearray:
    place = chance.randrange(len(content))
    content[place] = change(content[place])
    return content


ALTERATIONS: tuple[Callable[[Path, random.Random], None], ...] = (
    *(flip_bit, flip_bit, set_bytes, truncate, add, zero, cut_out),
    *(exchange, take_from_other_version, delete, empty, edit_manifest, edit_manifest),
)


@dataclass
class Fuzzing:
    """Results of many alterations."""

    counts: Counter[tuple[str, str]]
    """By alteration and what it ended in: `error`, `right rows`, `wrong rows`, or another exception's name."""
    bad: list[str]
    """Sentences about results that must not be."""


def fuzz(folder: Path, seed: int, faults: int) -> Fuzzing:
    """Alter a fresh copy of a version `faults` times, and read it each time."""
    write(folder / "original", 1)
    write(folder / "other", 2)
    right = original_rows(1)
    assert read(folder / "original") == right
    fuzzing = Fuzzing(Counter(), [])
    for number in range(faults):
        chance = random.Random(f"{seed}/{number}")
        altered = folder / "altered"
        shutil.rmtree(altered, ignore_errors=True)
        shutil.copytree(folder / "original", altered)
        alteration = chance.choice(ALTERATIONS)
        path = chance.choice(files(altered))
        alteration(path, chance)
        end = _read_outcome(altered, right)
        fuzzing.counts[alteration.__name__, end.partition(":")[0]] += 1
        if not end.startswith(("error", "right rows")):
            fuzzing.bad.append(f"{seed}/{number}: {alteration.__name__} of {path.relative_to(altered)}: {end}")
    return fuzzing


def _read_outcome(folder: Path, right: dict[str, list[tuple]]) -> str:
    try:
        rows = read(folder)
    except LockstepError as error:
        return f"error: {error}" if str(error) else "an error without a message"
    except Exception as error:  # whatever else is raised is what is looked for
        return f"{type(error).__name__}: {error}"
    return "right rows" if rows == right else "wrong rows"
