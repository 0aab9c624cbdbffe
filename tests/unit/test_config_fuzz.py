"""Shipped configs, damaged in 500 ways: each is a config that says what it was given, or lines that say what is wrong."""

import copy
import math
import random
import re
from collections import Counter
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.config import Config, load, parse
from pipelines.errors import ConfigError

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "conf").glob("*.yaml"))
CONFIGS = 500
ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 10**30, -(10**30), 2**63, 1e308, math.nan, math.inf, -math.inf, 5e-324,
    "", " ", "x", "None", "null", "NaN", "../..", "a.b", "t; x", "x" * 5_000, "\u202e", "\u2028", "\0", "\ud800", "Ünïcode", "ﬁ", "🦆",
    "a\nb", "package://antigravity/x.csv", "s3://", "://", "file:", "%00", "[", "{", "`", "'", '"', "os:system", "x:y",
    date(2017, 2, 28), b"\xff", {1, 2}, [], {}, [[]], [None], {"": ""}, {None: None}, {1: 2}, [math.nan], {"a": {"b": {"c": [{}]}}},
]  # fmt: skip


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something lies in nested values."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, below in inner for place in ((*way, key), *places(below, (*way, key)))]


def mutate(values: Any, chance: random.Random) -> str:
    """Change one place, and say how."""
    way = chance.choice(places(values))
    for key in way[:-1]:
        values = values[key]
    last = way[-1]
    how = chance.choice(["odd", "odd", "odd", "removed", "renamed", "added", "deep", "other", "listed"])
    match how:
        case "odd":
            values[last] = chance.choice(ODD)
        case "removed":
            del values[last]
        case "renamed" if isinstance(values, dict):
            values[chance.choice([f"{last}_", str(last)[:-1], str(last).upper(), *filter(_is_key, ODD)])] = values.pop(last)
        case "added" if isinstance(values, dict):
            values[chance.choice(list(filter(_is_key, ODD)))] = chance.choice(ODD)
        case "deep":
            for _ in range(chance.choice([2, 5, 20])):
                values[last] = chance.choice([[values[last]], {"a": values[last]}])
        case "other":
            values[last] = chance.choice(list(values.values()) if isinstance(values, dict) else values)
        case "listed":
            values[last] = [values[last], values[last]]
    return f"{how} {way}"


def _is_key(value: Any) -> bool:
    return not isinstance(value, list | dict | set)


@pytest.fixture(scope="module")
def shipped() -> list[dict[str, Any]]:
    return [yaml.safe_load(path.read_text()) for path in FILES]


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_config_loads_or_is_told_in_lines(seed: int, shipped: list[dict[str, Any]], tmp_path: Path) -> None:
    ends: Counter[str] = Counter()
    for number in range(CONFIGS // 4):
        chance = random.Random(f"{seed}/{number}")
        values = copy.deepcopy(chance.choice(shipped))
        changes = [mutate(values, chance) for _ in range(chance.choice([1, 1, 2, 5]))]
        case = f"{seed}/{number}: {changes}"
        path = tmp_path / "x.yaml"
        if number % 5:  # reading YAML takes the most time
            ends[check_loading(partial(parse, values, str(path)), values, path, case)] += 1
            continue
        text = yaml.safe_dump(values, sort_keys=False)
        if chance.random() < 0.3:
            text = text.replace(": ", ": " + chance.choice("[{") * chance.choice([3, 100]), 1)
        path.write_text(text)
        ends[check_loading(partial(load, path), values, path, case)] += 1
    assert ends["refused"] > 10 and ends["loaded"], ends


def check_loading(loaded: Callable[[], Config], raw_values: dict[str, Any], path: Path, case: str) -> str:
    try:
        config = loaded()
    except ConfigError as error:
        lines = str(error).split("\n")
        assert all(line.startswith(str(path)) and len(line) < 600 and line.isprintable() for line in lines), (case, lines)
        jargon = re.compile(r"Input should|Field required|Traceback|pydantic|NoneType|unable to parse|object at 0x|Error:")
        assert not jargon.search(str(error)), (case, str(error))
        return "refused"
    # What was given is what is held: nothing was dropped or made something else.
    loaded_values = config.model_dump(by_alias=True)
    for way in places(raw_values):
        assert _is_same(_at(raw_values, way), _at(loaded_values, way)), (case, way)
    return "loaded"


def _at(values: Any, way: tuple[Any, ...]) -> Any:
    for key in way:
        if isinstance(values, str):
            return values  # `age: standardize` and `key: id` stand for more
        values = values[key]
    return values


def _is_same(raw_value: Any, loaded_value: Any) -> bool:
    if isinstance(raw_value, dict | list) or isinstance(loaded_value, dict | list | tuple):
        return True  # their members are compared one by one
    if isinstance(raw_value, bool) or isinstance(loaded_value, bool):
        return str(raw_value).lower() in (str(loaded_value).lower(), "1", "0", "1.0", "0.0", "yes", "no", "on", "off", "t", "f", "y", "n")
    if isinstance(loaded_value, int | float) and not isinstance(raw_value, date):
        return float(raw_value) == float(loaded_value)
    return str(raw_value) == str(loaded_value) or (isinstance(raw_value, str) and "${" in raw_value)
