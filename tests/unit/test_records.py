"""Text falls into records, and what a parser would have to guess is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.sources.text.records import IN_DOUBT, NOT_TEXT, NUL, QUOTES, SURROGATE, Dialect, cut
from pipelines.errors import SourceError

LINES = Dialect(quote='"')
VALUES_WITH_BREAKS = Dialect(quote='"', multiline=True)


def records(
    text: str | bytes, dialect: Dialect = LINES, block_bytes: int = 1 << 20, start: bool = True
) -> list[tuple[str, str | None, int]]:
    data = text.encode() if isinstance(text, str) else text
    blocks = [data[begin : begin + block_bytes] for begin in range(0, len(data), block_bytes)]
    return [tuple(row.values()) for batch in cut(blocks, dialect, "people.csv", start) for row in batch.to_pylist()]


def test_lines_end_with_any_break() -> None:
    assert records("a\nb\r\nc\rd") == [("a", None, 1), ("b", None, 2), ("c", None, 3), ("d", None, 4)]


def test_blank_lines_are_left_out_unless_kept() -> None:
    assert records("a\n\n \nb\n") == [("a", None, 1), ("b", None, 4)]
    assert [text for text, _, _ in records("a\n\nb\n", Dialect(keep_blank=True))] == ["a", "", "b"]


def test_a_quoted_value_may_hold_line_breaks() -> None:
    text = '1,"Once upon \r\na time",2\n3,"say ""ha""",4\n'
    assert records(text, VALUES_WITH_BREAKS) == [('1,"Once upon \r\na time",2', None, 1), ('3,"say ""ha""",4', None, 3)]


def test_where_it_may_not_every_line_of_it_is_refused() -> None:
    assert records('1,"Once upon\n8,8,8\na time",2\n3,4,5\n') == [
        ('1,"Once upon', QUOTES, 1),
        ("8,8,8", QUOTES, 2),
        ('a time",2', QUOTES, 3),
        ("3,4,5", None, 4),
    ]


@pytest.mark.parametrize("broken", ['"3,4', '3,"4', '"3,"4"', '"3",4"', '3" ,4', '3,"4" x', '"""3,4'])
@pytest.mark.parametrize("dialect", [LINES, VALUES_WITH_BREAKS, Dialect(quote='"', escape="\\", multiline=True)])
def test_a_stray_quote_costs_its_own_line(broken: str, dialect: Dialect) -> None:
    """Whatever quotes follow: none, those of values, and those of a value with line breaks."""
    for following in (["5,6", "7,8"] if not dialect.multiline else [], ['"5","6, 7"', '8,""', '"9",0'], ["5,6"] * 11):
        assert records("\n".join(["1,2", broken, *following]), replace(dialect, width=2)) == [
            ("1,2", None, 1), (broken, QUOTES, 2), *((line, None, number) for number, line in enumerate(following, 3))
        ]  # fmt: skip
    if dialect.multiline:
        assert records(f'1,2\n{broken}\n3,"a\n\nb"\n4,5', dialect)[1:] == [(broken, QUOTES, 2), ('3,"a\n\nb"', None, 3), ("4,5", None, 6)]


@pytest.mark.parametrize("broken", ['3,"4" x\n5,6\n7"', '3,"4\n5"6\n7,8\n9"', '3"4\n5,6\n7"', '3,"4\n5,6'])
@pytest.mark.parametrize("block_bytes", [3, 1_000])
def test_lines_of_a_broken_value_are_no_rows(broken: str, block_bytes: int) -> None:
    """A quote within it, a line within it, none before it, or none behind it."""
    dialect = Dialect(quote='"', multiline=True, width=2)
    lines = [(line, QUOTES if '"' in line else IN_DOUBT, number) for number, line in enumerate(broken.split("\n"), 2)]
    rows = [(row, None, len(lines) + 2 + number) for number, row in enumerate(['"a","b"', "1,2", "3,4"])]
    assert records("\n".join(["1,2", broken, '"a","b"', "1,2", "3,4"]), dialect, block_bytes) == [("1,2", None, 1), *lines, *rows]


@pytest.mark.parametrize("line", ['1,5" pipe"x,2', '1,"a "b" c",2', '1,"a" b,2', '1, "a"'])
def test_a_stray_quote_is_refused(line: str) -> None:
    assert records(line) == [(line, QUOTES, 1)]


@pytest.mark.parametrize("line", ['"a","b"', '"",""', '"a" ,1', '"a,b",""""', "a,b", '1,"x",'])
def test_whole_quoted_values_are_not(line: str) -> None:
    assert records(line) == [(line, None, 1)]


def test_blanks_may_come_before_a_quote_where_they_are_ignored() -> None:
    assert records('1, "a"', Dialect(quote='"', ignore_leading_blanks=True)) == [('1, "a"', None, 1)]


def test_another_escape() -> None:
    text = '1,"a \\" b\n\\\\",2\n'
    assert records(text, Dialect(quote='"', escape="\\", multiline=True)) == [(text[:-1], None, 1)]


def test_bytes_that_are_not_utf8_are_refused_and_shown() -> None:
    assert records(b"caf\xc3\xa9\nna\xefve\nna\x00ve\n") == [("café", None, 1), ("na\\xefve", NOT_TEXT, 2), ("na\0ve", NUL, 3)]


def test_another_encoding_is_decoded_strictly() -> None:
    assert records("é\n".encode("latin-1"), Dialect(encoding="ISO-8859-1")) == [("é", None, 1)]
    assert records("é\nx\n".encode("utf-16"), Dialect(encoding="UTF-16"), block_bytes=3) == [("é", None, 1), ("x", None, 2)]
    with pytest.raises(SourceError, match=r"people.csv is not UTF-16"):
        records(b"\xff\xfea\x00\n\x00\x00", Dialect(encoding="UTF-16"))


def test_utf16_is_recognised() -> None:
    with pytest.raises(SourceError, match=r"people.csv is UTF-16; set options: {encoding: UTF-16"):
        records("a,b\n".encode("utf-16"))


def test_a_byte_order_mark_is_no_text() -> None:
    assert records(b"\xef\xbb\xbfa\n") == [("a", None, 1)]


def test_the_header_must_name_the_schema() -> None:
    dialect = Dialect(quote='"', header=True, columns=("age", "name"), skip=1)
    assert records('# made today\nAge,"name"\n1,x\n', dialect) == [("1,x", None, 3)]
    with pytest.raises(SourceError, match=r"people.csv has columns name, age; its schema has age, name"):
        records("#\nname,age\n", dialect)
    assert records("name,age\n", dialect, start=False) == [("name,age", None, 1)]


@pytest.mark.parametrize("dialect", [Dialect(header=True, comment="#"), Dialect(skip=9)], ids=["comments", "skipped lines"])
def test_a_header_behind_the_first_part_of_a_file_is_no_record(dialect: Dialect) -> None:
    """The next part would take it for one, and its lines to skip for records."""
    with pytest.raises(SourceError, match=r"people.csv: comments and lines to skip fill its first part, .* options: {multiLine: true}"):
        list(cut([b"#\n" * 5], dialect, "people.csv", end=False))
    assert not list(cut([b"#\n" * 5], dialect, "people.csv"))
    assert not replace(dialect, multiline=True).splits, "one task reads the file"


def test_comments_are_left_out() -> None:
    assert records("#x\n1\n", Dialect(comment="#")) == [("1", None, 2)]


def test_half_a_surrogate_pair_is_refused() -> None:
    texts = [r'{"a": "\ud800"}', r'{"a": "\\ud800"}', r'{"a": "\ud83d\ude00"}', r'{"a": "\uDE00"}']
    assert [problem for _, problem, _ in records("\n".join(texts), Dialect(json=True))] == [SURROGATE, None, None, SURROGATE]


def test_a_file_may_be_one_record() -> None:
    assert records("[1,\n2]\n", Dialect(whole_file=True), block_bytes=2) == [("[1,\n2]\n", None, 1)]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('{"a": 1}\n', [('{"a": 1}', None, 1)]),
        ('\n[{"a": 1e400},\n "x" , null]', [('{"a": 1e400}', None, 2), ('"x"', None, 3), ("null", None, 3)]),
        (" [ ] ", []),
        (" ", []),
        (r'["\udc00"]', [(r'"\udc00"', SURROGATE, 1)]),
    ],
)
def test_a_json_document_is_a_record_or_an_array_of_them(document: str, expected: list[tuple[str, str | None, int]]) -> None:
    assert records(document, Dialect(json=True, whole_file=True)) == expected


@pytest.mark.parametrize("document", ["[1,]", "[1", "[", "[,1]", "[1]]", "{}{}", "{'a': 1}", "[1 2]", "[" * 100_000, '["\t"]', b'["\xff"]'])
def test_what_is_not_one_json_document_is_refused(document: str | bytes) -> None:
    with pytest.raises(SourceError, match=r"people.csv(:\d+)? is not (JSON|UTF-8)"):
        records(document, Dialect(json=True, whole_file=True))


def test_an_endless_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.data.sources.text.records.RECORD_BYTES", 100)
    with pytest.raises(SourceError, match=r"people.csv: a record is larger than 100 bytes"):
        records('"' + "a" * 200, VALUES_WITH_BREAKS, block_bytes=10)
    assert [problem for _, problem, _ in records('"' + "a\n" * 100, VALUES_WITH_BREAKS, block_bytes=10)] == [QUOTES, *[IN_DOUBT] * 99]


@given(
    st.text('ab",\r\n\\', max_size=60),
    st.integers(1, 20),
    st.sampled_from([LINES, VALUES_WITH_BREAKS, Dialect(quote='"', escape="\\", multiline=True)]),
)
def test_blocks_do_not_matter(text: str, block_bytes: int, dialect: Dialect) -> None:
    assert records(text, dialect, block_bytes) == records(text, dialect)


@given(st.text('ab",\n \t', max_size=30), st.booleans())
def test_quotes_are_judged_alike_with_and_without_the_short_way(text: str, blanks: bool) -> None:
    by_numpy = Dialect(quote='"', multiline=True, ignore_leading_blanks=blanks)
    by_regex = replace(by_numpy, separator=",,")
    assert records(text, by_numpy) == [(record.replace(",,", ","), *fault) for record, *fault in records(text.replace(",", ",,"), by_regex)]
