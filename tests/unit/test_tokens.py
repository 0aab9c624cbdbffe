"""Text as tokens, and documents as windows: nothing is lost, nothing comes twice, and the order of counts leaves no trace."""

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fitting import gather_statistics
from hypothesis import given
from hypothesis import strategies as st

from pipelines.config.dataset.dataset import Dataset
from pipelines.data.features import Encoders, fit_encoders
from pipelines.data.features.base import Packer
from pipelines.data.features.byte_words import byte_word_counts
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import END
from pipelines.errors import ConfigError

TEXTS = ["to be, or not to be", "that is the question", "Größe 📐\n\n  x = {'a': 1}\n", "b"]
KINDS: dict[str, dict[str, Any]] = {"bytes": {}, "characters": {}, "bpe": {"vocabulary": 270}}


def fit_text(kind: str, texts: list[str | None], length: int = 5) -> dict[str, FittedEncoder]:
    raw = pa.table({"text": pa.array(texts, pa.string())})
    dataset = Dataset.model_validate({"path": "data", "features": {"text": {"encoder": kind, "length": length, **KINDS[kind]}}})
    return fit_encoders(dataset, gather_statistics(dataset, raw), raw.schema)


@lru_cache
def fit_packer(kind: str, length: int = 5) -> Packer:
    packer = Encoders(fit_text(kind, list(TEXTS), length)).packer
    assert packer is not None
    return packer


def encode(packer: Packer, texts: list[str]) -> list[np.ndarray]:
    return [np.array(document) for document in packer.encode(pa.array(texts, pa.string())).to_pylist()]


@pytest.mark.parametrize("kind", KINDS)
@given(documents=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), max_size=6), length=st.integers(1, 9))
def test_p2_every_token_and_every_end_is_predicted_once(kind: str, documents: list[str], length: int) -> None:
    packer = fit_packer(kind, length)
    lists = encode(packer, documents)
    windows = packer.windows(lists)
    column = packer.column("text", "feature")
    assert (windows.shape[1:], windows.dtype) == (column.shape, column.dtype)
    assert len(windows) == packer.window_count(len(lists), sum(map(len, lists)))
    assert (windows[1:, 0] == windows[:-1, -1]).all(), "a window begins with the token that the one before ended with"
    expected = [number for document in lists for number in (*document.tolist(), END)]
    predicted = [number for previous, number in zip(windows[:, :-1].ravel(), windows[:, 1:].ravel(), strict=True) if previous or number]
    assert predicted == expected
    assert windows[:, 1:].size - len(expected) < length


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_the_text(kind: str) -> None:
    packer = fit_packer(kind)
    for text, numbers in zip(TEXTS, encode(packer, TEXTS), strict=True):
        assert b"".join(packer.tokens[number] for number in numbers).decode() == text
        assert END not in numbers and max(numbers) < len(packer.tokens)
    assert packer.tokens[END] == b""


def test_a_character_that_training_has_not_seen_is_one_of_all_others() -> None:
    packer = fit_packer("characters")
    (numbers,) = encode(packer, ["bé🎈b"])
    assert [packer.tokens[number].decode() for number in numbers] == ["b", "?", "?", "b"]


@pytest.mark.parametrize("text", [None, ""])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_document_is_refused(kind: str, text: str | None) -> None:
    table, reasons = Encoders(fit_text(kind, list(TEXTS))).encode(pa.table({"text": pa.array(["a", text, "b"], pa.string())}))
    assert len(table) == 2
    assert reasons.to_pylist() == [None, f"text: {kind} cannot encode {'NULL' if text is None else 'empty text'}", None]


@pytest.mark.parametrize("kind", ["characters", "bpe"])
def test_p6_the_order_of_the_texts_leaves_no_trace_in_the_state(kind: str) -> None:
    texts = [f"{text} {number % 7}" for number, text in enumerate(TEXTS * 20)]
    assert fit_text(kind, list(texts))["text"] == fit_text(kind, list(reversed(texts)))["text"]
    assert fit_text(kind, list(texts))["text"].state != fit_text(kind, TEXTS[:1])["text"].state


def test_the_most_frequent_pairs_are_merged_first() -> None:
    assert fit_text("bpe", ["low low low lower", "lot"])["text"].state["merges"][:2] == ["l o", "lo w"]


def test_words_are_counted_as_byte_pairs_see_them() -> None:
    counts = byte_word_counts(pa.array(["a b b", None, "é b"]))
    assert dict(zip(*counts.to_pydict().values(), strict=True)) == {"a": 1, "Ġb": 3, "Ã©": 1}


@pytest.mark.parametrize(("kind", "message"), [("characters", "has no character"), ("bpe", "has no word")])
def test_text_that_teaches_nothing_is_named(kind: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^dataset.features.text: column text {message} in the training split; use another column$"):
        fit_text(kind, [None, ""])


def test_few_tokens_take_a_byte() -> None:
    assert [fit_packer(kind).column("text", "feature").dtype for kind in ("characters", "bytes")] == ["uint8", "uint16"]
