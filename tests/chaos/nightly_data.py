"""A folder of Parquet files that changes every night, and the rows that a version of it must have."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 80
"""New keys of a night."""
KINDS = {
    "rows added": 4,
    "rows corrected": 2,
    "rows added and corrected": 6,
    "only refused rows": 1,
    "nothing": 2,
    "file erased": 1,
    "file altered": 1,
    "people erased": 2,
}
"""What changes in a night, with the weights of their chances."""
READ_IN_FULL = ("file erased", "file altered", "people erased")
MINIMUM_AGE = 5.0
"""Younger rows fail an expectation."""
Row = tuple[int, float, int, bool]
"""Key, age, when it was seen, and the label. Rows of one key that were seen at the same time are equal."""
SCHEMA = pa.schema([("id", pa.int64()), ("age", pa.float64()), ("seen_on", pa.int64()), ("left", pa.bool_())])


@dataclass
class NightlyData:
    """The files as they are now. The folder exists."""

    folder: Path
    chance: random.Random
    files: dict[str, list[Row]] = field(default_factory=dict)
    keys: int = 0
    """Keys that have come so far: the numbers below."""
    kinds_to_come: list[str] = field(default_factory=list)
    erased_keys: set[int] = field(default_factory=set)
    """Keys of people who asked to be forgotten. No later night brings one."""

    def change(self, night: int) -> str:
        """Change the files as this night does, and return how."""
        kind = self._choose_kind(night)
        match kind:
            case "rows added":
                self.add_rows(night)
            case "rows corrected":
                self._write(night, self._corrections(night))
            case "rows added and corrected":
                self._write(night, [*self._corrections(night), *self._new_rows(night)])
            case "only refused rows":
                self._write(night, [*self._late_rows(night, 5), *self._implausible_rows(range(self.keys, self.keys + 3), night)])
            case "file erased":
                name = self.chance.choice(sorted(self.files))
                (self.folder / name).unlink()
                del self.files[name]
            case "file altered":
                name = self.chance.choice([name for name, rows in sorted(self.files.items()) if len(rows) > 5])
                self._replace(name, self.files[name][1:])
            case "people erased":
                self._erase_people(2)
        return kind

    def _choose_kind(self, night: int) -> str:
        """How the files change in a night. The first nights bring every kind once, in any order."""
        if night == 0:
            return "rows added"
        if night > len(KINDS):
            return self._allow(self.chance.choices(list(KINDS), list(KINDS.values()))[0])
        self.kinds_to_come = self.kinds_to_come or self.chance.sample(list(KINDS), len(KINDS))
        return self._allow(self.kinds_to_come.pop())

    def _allow(self, kind: str) -> str:
        """The kind, or another one while there are too few files for it."""
        return "file altered" if kind == "file erased" and len(self.files) < 3 else kind

    def add_rows(self, night: int) -> None:
        """Write a file with rows under new keys."""
        self._write(night, self._new_rows(night))

    def expect_rows(self) -> dict[int, float]:
        """Age by key, of the newest row of each key among those that are not refused."""
        newest: dict[int, tuple[int, float]] = {}
        for key, age, seen_on, _ in [row for rows in self.files.values() for row in rows]:
            if age >= MINIMUM_AGE and (key not in newest or seen_on > newest[key][0]):
                newest[key] = seen_on, age
        return {key: age for key, (_, age) in newest.items()}

    def _erase_people(self, count: int) -> None:
        """Remove all rows of a few people from the files."""
        people = set(self.chance.sample(sorted(self.expect_rows()), count))
        self.erased_keys |= people
        for name, rows in sorted(self.files.items()):
            remaining = [row for row in rows if row[0] not in people]
            if remaining != rows:
                self._replace(name, remaining)

    def _known_keys(self) -> list[int]:
        return [key for key in range(self.keys) if key not in self.erased_keys]

    def _new_rows(self, night: int) -> list[Row]:
        keys = range(self.keys, self.keys + ROWS)
        self.keys += ROWS
        return [*self._rows(keys, [night] * ROWS), *self._implausible_rows(self.chance.sample(keys, 2), night)]

    def _corrections(self, night: int) -> list[Row]:
        """Newer rows under known keys, older ones that come late, and the same rows once more."""
        keys = self.chance.sample(self._known_keys(), min(15, len(self._known_keys())))
        all_rows = [row for _, rows in sorted(self.files.items()) for row in rows]
        return [*self._rows(keys, [night] * len(keys)), *self._late_rows(night, 10), *self.chance.sample(all_rows, min(10, len(all_rows)))]

    def _late_rows(self, night: int, count: int) -> list[Row]:
        keys = self.chance.sample(self._known_keys(), min(count, len(self._known_keys())))
        return self._rows(keys, [-100 * night - number for number in range(1, len(keys) + 1)])

    def _rows(self, keys: "range | list[int]", seen_on: list[int]) -> list[Row]:
        ages = [self.chance.gauss(40, 8) for _ in keys]
        return [(key, age, moment, age > 42) for key, age, moment in zip(keys, ages, seen_on, strict=True)]

    def _implausible_rows(self, keys: "range | list[int]", night: int) -> list[Row]:
        return [(key, 1.0, night, True) for key in keys]

    def _write(self, night: int, rows: list[Row]) -> None:
        self._replace(f"night-{night:03}.parquet", rows)

    def _replace(self, name: str, rows: list[Row]) -> None:
        self.files[name] = rows
        columns = [pa.array(values, column.type) for values, column in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
        pq.write_table(pa.table(columns, schema=SCHEMA), self.folder.parent / name)
        (self.folder.parent / name).rename(self.folder / name)  # a reader sees all of it, or the file before
