"""Sentences about fitted encoders."""

from collections.abc import Mapping
from typing import Any

from pipelines.data.versions.manifest import FittedEncoder

_MOST_VALUES = 6


def describe_encoder(name: str, fitted: FittedEncoder) -> str:
    """Say how the tensor column `name` comes from its raw columns."""
    settings, state, column = fitted.feature, fitted.state, fitted.column
    kind = str(settings.get("encoder", ""))
    shape = f" of shape {list(column.shape)}" if column.shape else ""
    source = "" if fitted.inputs == (name,) else f" from {', '.join(fitted.inputs)}"
    return f"{kind}{source}: {_method(kind, settings, state)}; {column.dtype}{shape}"


def _method(kind: str, settings: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    missing = _impute_clause(settings, state)
    match kind:
        case "standardize":
            return f"(x − {_short(state.get('mean'))}) / {_short(state.get('deviation'))}{missing}"
        case "quantile":
            edges = state.get("edges", [])
            return f"the number of one of {len(edges) + 1} bins, with edges {_few(edges)}{missing}"
        case "normal_quantile":
            return f"its quantile among {len(state.get('points', []))} points, as a normally distributed number{missing}"
        case "vocabulary":
            values = state.get("values", [])
            return f"{len(values):,} values have numbers from 1 ({_few(values)}); 0 is all else"
        case "sequence" | "words" | "tokenizer":
            return _word_method(kind, settings, state)
        case "terms":
            terms = state.get("terms", [])
            return f"at most {settings.get('length')} of the {len(terms):,} terms that have numbers ({_few(terms)}), with their counts"
        case "label":
            classes = state.get("classes", [])
            return f"{len(classes):,} classes, in this order: {_few(classes)}"
        case "binary":
            return "1 for true, 0 for false"
    # Of any other encoder: its settings that are not the default ones' names, and the sizes of its state.
    chosen = [(key, value) for key, value in settings.items() if key not in ("encoder", "column") and value not in ("", None, [], "none")]
    return ", ".join(f"{key} {_short(value)}" for key, value in [*chosen, *state.items()]) or "as it is"


def _word_method(kind: str, settings: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    length, words = settings.get("length"), state.get("words", [])
    if kind == "tokenizer":
        return f"the first {length} tokens of a pretrained model's tokenizer, numbered from 1; 0 is padding"
    if kind == "sequence":
        return f"the {settings.get('keep')} {length} words, of which {len(words):,} have numbers ({_few(words)})"
    share = state.get("unknown", 0) / max(state.get("total", 1), 1)
    return f"windows of {length} words, of which {len(words):,} have tokens ({_few(words)}); {share:.2%} of those in training are unknown"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    if isinstance(value, list | dict):
        return f"of {len(value):,} entries" if len(str(value)) > 40 else str(value)
    return str(value)[:40]


def _impute_clause(settings: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    if settings.get("impute") == "keep":
        return ", with NaN where it is missing"
    fill_value = state.get("impute")
    return "" if fill_value is None else f", with {_short(fill_value)} where it is missing"


def _few(values: Any) -> str:
    first_values = [_short(value)[:20] for value in list(values)[:_MOST_VALUES]]
    return ", ".join(first_values) + (", …" if len(values) > _MOST_VALUES else "")
