"""Differences between two manifests besides rows: columns of the query, encoders with their states, settings, sources and refused rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.config.messages.words import show_count
from pipelines.data.features.base import show_briefly
from pipelines.data.versions.manifest import FittedEncoder, Manifest
from pipelines.data.versions.schema import schema_from_text
from pipelines.diff.drift import ColumnDrift, compare_refusals

_MOST_ENTRIES = 5
"""Entries of a list in a state, such as values of a vocabulary, that are named."""
_ABSENT = object()


@dataclass(frozen=True)
class NamedChanges:
    """Things that are known by their names."""

    added: Mapping[str, str] = field(default_factory=dict)
    """In a few words, by name."""
    removed: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)
    """What became of it."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def lines(self) -> list[str]:
        """A line for each, behind +, − or ~."""
        signs = (("+", self.added), ("−", self.removed), ("~", self.changed))
        return [f"{sign} {name} {text}".rstrip() for sign, texts in signs for name, text in texts.items()]


def schema_changes(before: Manifest, now: Manifest) -> NamedChanges:
    """The columns of the query, with their types; none for versions without a schema."""
    return _changes_by_name(*(_raw_types(manifest) for manifest in (before, now)))


def encoder_changes(before: Manifest, now: Manifest) -> NamedChanges:
    """The tensor columns, and what differs in the settings and the fitted states of those that both have."""
    first, second = before.encoders, now.encoders
    added, removed = (
        {name: _describe_column(encoders[name]) for name in encoders if name not in compared}
        for encoders, compared in ((second, first), (first, second))
    )
    changed = {name: text for name in first if name in second and (text := _describe_encoder_change(first[name], second[name]))}
    return NamedChanges(added, removed, changed)


def setting_changes(before: Manifest, now: Manifest) -> NamedChanges:
    """The settings that decide the rows, by their dotted keys."""
    return _changes_by_name(*(dict(_leaves(manifest.identity)) for manifest in (before, now)))


def source_changes(before: Manifest, now: Manifest) -> NamedChanges:
    """The raw tables whose files differ."""
    tables = []
    for manifest in (before, now):
        texts = {
            name: f"{show_count(source.files, 'file')}, {show_count(source.bytes, 'byte')}" for name, source in manifest.sources.items()
        }
        tables.append({name: f"{text}, digest {manifest.sources[name].digest[:12]}" for name, text in texts.items()})
    return _changes_by_name(*tables)


def refusal_drifts(before: Manifest, now: Manifest) -> dict[str, ColumnDrift]:
    """By reason, how many rows each version refused, and whether chance explains the difference."""
    reasons = dict.fromkeys([*before.quarantined, *now.quarantined])
    rows = [max(manifest.rows_parsed, sum(manifest.quarantined.values())) for manifest in (before, now)]
    return {
        reason: compare_refusals(before.quarantined.get(reason, 0), rows[0], now.quarantined.get(reason, 0), rows[1]) for reason in reasons
    }


def _changes_by_name(before: Mapping[str, str], now: Mapping[str, str]) -> NamedChanges:
    return NamedChanges(
        {name: text for name, text in now.items() if name not in before},
        {name: text for name, text in before.items() if name not in now},
        {name: f"{text} → {now[name]}" for name, text in before.items() if name in now and now[name] != text},
    )


def _raw_types(manifest: Manifest) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema_from_text(manifest.raw_schema)} if manifest.raw_schema else {}


def _describe_column(fitted: FittedEncoder) -> str:
    shape = f" of shape {list(fitted.column.shape)}" if fitted.column.shape else ""
    categories = f" of {fitted.column.cardinality:,} categories" if fitted.column.cardinality is not None else ""
    return f"{fitted.feature.get('encoder', '')}, {fitted.column.dtype}{shape}{categories}"


def _describe_encoder_change(before: FittedEncoder, now: FittedEncoder) -> str:
    """Differences of settings and state in a line; empty if there are none."""
    columns = [_describe_column(fitted) for fitted in (before, now)]
    texts = [f"{columns[0]} → {columns[1]}"] if columns[0] != columns[1] else []
    if before.inputs != now.inputs:
        texts.append(f"reads {', '.join(before.inputs)} → {', '.join(now.inputs)}")
    for first, second in ((before.feature, now.feature), (before.state, now.state)):
        for key in dict.fromkeys([*first, *second]):
            values = first.get(key, _ABSENT), second.get(key, _ABSENT)
            if values[0] != values[1] and key != "encoder":
                texts.append(_describe_value_change(key, *values))
    return "; ".join(texts)


def _describe_value_change(key: str, before: Any, now: Any) -> str:
    if isinstance(before, list) and isinstance(now, list) and all(isinstance(value, str) for value in [*before, *now]):
        if added_or_removed := [*_list_with_sign("+", set(now) - set(before)), *_list_with_sign("−", set(before) - set(now))]:
            return f"{key} {', '.join(added_or_removed)}"
        return f"{key} in another order"
    texts = ["nothing" if value is _ABSENT else show_briefly(value) for value in (before, now)]
    if texts[0] == texts[1]:  # numbers that four digits do not tell apart, or long lists
        texts = _tell_apart(before, now) if isinstance(before, float) and isinstance(now, float) else [texts[0], "others"]
    return f"{key} {texts[0]} → {texts[1]}"


def _tell_apart(before: float, now: float) -> list[str]:
    """Both numbers with as few digits as show a difference."""
    pairs = ([f"{value:.{digits}g}" for value in (before, now)] for digits in (6, 9, 12, 17))
    return next((pair for pair in pairs if pair[0] != pair[1]), [repr(before), repr(now)])


def _list_with_sign(sign: str, values: set[str]) -> Iterator[str]:
    in_order = sorted(values)
    yield from (f"{sign}{show_briefly(value)}" for value in in_order[:_MOST_ENTRIES])
    if len(in_order) > _MOST_ENTRIES:
        yield f"{sign}{len(in_order) - _MOST_ENTRIES:,} more"


def _leaves(values: Mapping[str, Any], key: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{key}{name}.")
        else:
            yield f"{key}{name}", show_briefly(value) if len(str(value)) <= 200 else f"{str(value)[:200]}…"
