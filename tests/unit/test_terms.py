"""Terms of texts, whatever their order: which there are, how they are counted, numbered and left out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from unicodedata import category

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fitting import fit, fit_encoder
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from pipelines.config.features import encoder_settings
from pipelines.data.features import raw, text_pieces
from pipelines.data.features.base import Encoder
from pipelines.data.features.encoding import implementation
from pipelines.data.features.statistics import Accumulator, statistics_from_summary
from pipelines.data.features.text_pieces import TermRule, split_terms, term_rule
from pipelines.data.versions.schema import to_numpy
from pipelines.errors import ConfigError

TEXTS = ["It's a film, a good film.", "", None, "Not  good", "# a < b>c", "film film film"]
ASSIGNED = st.characters(exclude_categories=["Cn", "Cs", "Co"])
"""Those that Python's version of Unicode has: Arrow may have a newer one."""
WORDS, CHARACTERS = TermRule((1, 2), (), True), TermRule((), (2, 3), True)


def encode(encoder: Encoder, values: list[str | None]) -> list[list[list[int]]]:
    encoded = encoder.encode(pa.array(values, pa.string())).drop_null()
    rows = to_numpy(encoder.column("x", "feature"), encoded)
    return [[pair for pair in row if pair != [0, 0]] for row in rows.tolist()]


def terms_by_row(texts: list[str | None], rule: TermRule) -> list[Counter[str]]:
    counters = [Counter[str]() for _ in texts]
    for start, terms, rows in split_terms(pa.array(texts, pa.string()), rule):
        for term, row in zip(terms.to_pylist(), rows.tolist(), strict=True):
            counters[start + row][term] += 1
    return counters


def test_runs_of_words_stay_within_a_text() -> None:
    counters = terms_by_row(["a b a", "c", None, "", "b"], WORDS)
    assert counters == [{"a": 2, "b": 1, "a b": 1, "b a": 1}, {"c": 1}, {}, {}, {"b": 1}]


def test_runs_of_characters_have_the_ends_of_words() -> None:
    assert terms_by_row(["Ab a"], CHARACTERS) == [{"#<a": 2, "#ab": 1, "#b>": 1, "#<ab": 1, "#ab>": 1, "#a>": 1, "#<a>": 1}]


@limits(max_examples=60, deadline=None)
@given(texts=st.lists(st.none() | st.text(ASSIGNED, max_size=20) | st.text(st.sampled_from("ab #<>'É "), max_size=20), max_size=6))
def test_terms_are_those_of_a_reference_in_plain_python(texts: list[str | None]) -> None:
    for rule in (WORDS, CHARACTERS, TermRule((2, 3), (1,), False)):
        expected = []
        for text in texts:
            words = split_words(text or "")
            lower = [pc.utf8_lower(pa.scalar(word)).as_py() for word in words] if rule.lowercase else words
            expected.append(Counter(text_terms(lower, rule.words, rule.characters)))
        assert terms_by_row(texts, rule) == expected


def split_words(text: str) -> list[str]:
    """Runs of letters, digits and `_`, each with the apostrophe before it, and every other character except white space."""
    words, start = [], 0
    while start < len(text):
        end = start + (text[start] == "'" and start + 1 < len(text) and is_word_character(text[start + 1]))
        while end < len(text) and is_word_character(text[end]):
            end += 1
        end = max(end, start + 1)
        if not text[start].isspace():
            words.append(text[start:end])
        start = end
    return words


def is_word_character(character: str) -> bool:
    """Whether it is a letter, a number, a mark or `_`."""
    return character == "_" or category(character)[0] in "LNM"


def text_terms(words: list[str], word_lengths: Sequence[int], character_lengths: Sequence[int]) -> Iterator[str]:
    """The runs of words, and the runs of characters of each word between `<` and `>`, behind `#`."""
    for length in word_lengths:
        yield from (" ".join(words[place : place + length]) for place in range(len(words) - length + 1))
    for marked in (f"<{word}>" for word in words):
        for length in character_lengths:
            yield from (f"#{marked[place : place + length]}" for place in range(len(marked) - length + 1))


def test_words_of_every_character() -> None:
    characters = [chr(code) for code in range(0x110000) if category(chr(code)) not in ("Cn", "Cs", "Co")]
    texts = [f"a{character}b '{character}" for character in characters]
    assert [split_words(text) for text in texts] == raw.words(pa.array(texts)).to_pylist()


def make_encoder(settings: dict[str, Any], vocabulary: list[str]) -> Encoder:
    parsed = encoder_settings({"encoder": "terms", **settings})
    return implementation(parsed)(parsed, {"terms": vocabulary, "documents": [1] * len(vocabulary), "texts": 1})


def test_no_two_terms_of_different_kinds_are_equal() -> None:
    words = split_words("# a #a <a> a # #")
    assert set(text_terms(words, (1, 2, 3), ())).isdisjoint(text_terms(words, (), (1, 2, 3)))


def test_terms_are_numbered_by_the_texts_that_have_them() -> None:
    encoder = fit_encoder({"encoder": "terms", "words": [1], "length": 3}, pa.array(TEXTS, pa.string()))
    assert encoder.state == {"terms": ["a", "film", "good"], "documents": [2, 2, 2], "texts": 5}
    column = encoder.column("x", "feature")
    assert (column.shape, column.cardinality, column.counted) == ((3, 2), 4, True)
    assert encode(encoder, ["film a a zz", "", "GOOD"]) == [[[1, 2], [2, 1]], [], [[3, 1]]]
    assert encoder.decode(np.array([1, 3])).tolist() == ["a", "good"]


def test_terms_that_fewest_texts_have_do_not_fit() -> None:
    encoder = fit_encoder({"encoder": "terms", "words": [1], "min_count": 1, "length": 2}, pa.array(["a b c", "b c", "c"]))
    assert encoder.state["terms"] == ["c", "b", "a"] and encoder.state["documents"] == [3, 2, 1]
    assert encode(encoder, ["a a a b c"]) == [[[1, 1], [2, 1]]]


def test_null_is_refused_and_no_word_is_not() -> None:
    encoder = fit_encoder({"encoder": "terms", "min_count": 1}, pa.array(["a"]))
    assert encoder.encode(pa.array([None, "", "a"], pa.string())).is_null().to_pylist() == [True, False, False]
    assert encoder.encode(pa.array([], pa.string())).is_null().to_pylist() == []


def test_the_statistics_are_the_same_for_any_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"w{number % 7} w{number % 3} w{number % 7}" for number in range(60)]
    monkeypatch.setattr(text_pieces, "_BYTES_AT_ONCE", 40)

    def text_counts_by_term(parts: list[list[str]], needs: frozenset[str]) -> dict[str, int]:
        accumulators = [Accumulator(needs) for _ in parts]
        tables = []
        for accumulator, part in zip(accumulators, parts, strict=True):
            accumulator.add(pa.array(part), np.zeros(len(part), np.uint64))
            assert accumulator.terms_held > 0
            tables.append(accumulator.drain(WORDS.statistic))
            assert accumulator.terms_held == 0
        statistics = statistics_from_summary(accumulators[0].summary(), None, {WORDS.statistic: pa.concat_tables(tables)})
        table = statistics.terms[WORDS.statistic]
        return dict(zip(table["value"].to_pylist(), table["count"].to_pylist(), strict=True))

    needs = frozenset({WORDS.statistic})
    expected = text_counts_by_term([texts], needs)
    assert list(expected.items()) == list(text_counts_by_term([texts[:1], texts[1:25], texts[25:]], needs).items())
    assert expected["w0"] == sum("w0" in text.split() for text in texts), "a text counts once"


def test_a_rule_has_a_name_and_a_name_its_rule() -> None:
    for rule in (WORDS, CHARACTERS, TermRule((1,), (1, 2, 3), False)):
        assert term_rule(rule.statistic) == rule
    assert term_rule("counts") is None and term_rule("words") is None


def test_a_column_may_have_terms_and_words_and_values() -> None:
    raw = pa.table({"t": ["a b", "a"], "y": [1.0, 2.0]})
    features: dict[str, Any] = {
        "bag": {"encoder": "terms", "column": "t", "words": [1], "min_count": 1},
        "pairs": {"encoder": "terms", "column": "t", "words": [2], "min_count": 1},
        "order": {"encoder": "sequence", "column": "t", "length": 2},
    }
    encoders = fit(features, {"y": "identity"}, raw)
    assert encoders["bag"].state["terms"] == ["a", "b"]
    assert encoders["pairs"].state["terms"] == ["a b"]
    assert encoders["order"].state == {"words": ["a", "b"]}


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ({"n": "terms"}, "terms cannot encode column n, which is int64: it takes text"),
        ({"t": {"encoder": "terms", "min_count": 5}}, "has no term that 5 texts of the training split have; lower min_count"),
    ],
)
def test_what_cannot_be_encoded_is_said(features: dict, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        fit(features, {"y": "identity"}, pa.table({"t": ["a"], "n": [1], "y": [1.0]}))
    assert says in str(error.value)
