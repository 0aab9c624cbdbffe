"""Features whose names stand for many columns, as one feature for each column."""

import re
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.types as types

from pipelines.config.dataset.dataset import Dataset
from pipelines.config.features.base import COLUMN_KINDS, AutoSettings, EncoderSettings, is_pattern, split_pattern
from pipelines.config.messages.words import name_list, suggestion
from pipelines.data.features.encoding import implementation
from pipelines.data.features.raw import is_list, is_number, is_text
from pipelines.data.versions.schema import ROW_KEYS, ROW_NUMBERS
from pipelines.errors import ConfigError

_UNUSABLE = re.compile(r"[./`]")
_LONGEST_NAME = 100


def name_columns(dataset: Dataset, schema: pa.Schema) -> Dataset:
    """The dataset with a feature for each column of the query that a pattern matches first, in the query's order. Encoders stay `auto`.
    Raises ConfigError with one line per error. A pattern may match no column, or its encoder may not take one of them. A column may be
    named behind a pattern that matches it, or have a type for which there is no `auto`."""
    if dataset.is_resolved:
        return dataset
    kinds = {field.name: column_kind(field.type) for field in schema}
    readers, features, faults = _readers(dataset), dict[str, EncoderSettings](), []
    for name, settings in dataset.features.items():
        if not is_pattern(name):
            if (reader := readers.get(name, "")) and is_pattern(reader):
                faults.append(f"dataset.features.{name}: {reader} above it matches the column {name} first; move {name} before it")
            if isinstance(settings, AutoSettings):
                faults += [
                    f"dataset.features.{name}: auto takes no column of type {schema.field(column).type}, as {column} is; make a number "
                    f"of it in the query, such as month({column})"
                    for column in settings.inputs(name)
                    if kinds.get(column) in ("", "time")
                ]
            features[name] = settings
            readers.update({column: readers.get(column, name) for column in (name, *settings.inputs(name))})
            continue
        names, kind = split_pattern(name)
        matching = [column for column, other in kinds.items() if (not kind or kind == other) and names.fullmatch(column)]
        free = [column for column in matching if column not in readers]
        faults += [f"dataset.features.{name}: {fault}" for fault in _faults(name, settings, matching, free, readers, schema)]
        features.update(dict.fromkeys(free, settings))
        readers.update(dict.fromkeys(free, name))
    if faults:
        raise ConfigError("\n".join(faults))
    return dataset.model_copy(update={"features": features})


def column_kind(kind: pa.DataType) -> str:
    """One of COLUMN_KINDS; empty for any other type."""
    if types.is_boolean(kind):
        return "boolean"
    if is_number(kind):
        return "number"
    if is_text(kind):
        return "text"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "time"
    return "array" if is_list(kind) else ""


def _readers(dataset: Dataset) -> dict[str, str]:
    """The setting that uses each column which no pattern matches, before any feature is considered."""
    readers = dict.fromkeys(dataset.key, "dataset.key")
    split = dataset.split.model_dump()
    readers.update({split[key]: f"dataset.split.{key}" for key in ("by", "time", "group") if split.get(key)})
    for role in ("passthrough", "target"):
        for name, settings in getattr(dataset, role).items():
            readers.update(dict.fromkeys((name, *settings.inputs(name)), f"dataset.{role}.{name}"))
    return readers


def _faults(
    pattern: str, settings: EncoderSettings, matching: list[str], free: list[str], readers: Mapping[str, str], schema: pa.Schema
) -> Iterator[str]:
    """Why a pattern cannot stand for the columns that it matches."""
    if not matching:
        yield f"no column of the query matches; {_near(pattern, schema.names)}"
    elif not free:
        readers_of_columns = ", ".join(f"{column} by {readers[column]}" for column in matching[:3]) + (", …" if len(matching) > 3 else "")
        yield f"each column that it matches is read already, {readers_of_columns}; remove this pattern, or move it up"
    if unusable := [
        column
        for column in free
        if _UNUSABLE.search(column) or len(column) > _LONGEST_NAME or not column.isprintable() or column in (ROW_KEYS, ROW_NUMBERS)
    ]:
        yield f"{name_list(unusable)} cannot name a tensor column: too long, reserved, or with one of . / `; rename it in the query with AS"
    if isinstance(settings, AutoSettings):
        return
    refusal = implementation(settings).refusal
    reasons = {kind: refusal(settings, kind) for kind in dict.fromkeys(schema.field(column).type for column in free)}
    if refused := [column for column in free if reasons[schema.field(column).type]]:
        kind = schema.field(refused[0]).type
        yield (
            f"{settings.encoder} cannot encode {name_list(refused)} (column {refused[0]} is {kind}: {reasons[kind]}); name these columns "
            "above, or end the pattern with a kind, such as *:number"
        )


def _near(pattern: str, names: list[str]) -> str:
    """The names nearest to a pattern, without its kind."""
    base, _, kind = pattern.rpartition(":")
    if base and "*" in base and kind not in COLUMN_KINDS:
        return f"a kind is one of {', '.join(COLUMN_KINDS)}"
    literal = (base if base and kind in COLUMN_KINDS else pattern).replace("*", "")
    hint = suggestion(literal, names)
    columns = f"the query gives {name_list(names, literal)}"
    return f"{hint} ({columns})" if hint else columns
