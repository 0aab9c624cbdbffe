"""Messages about tables of many columns stay short, and say what removed all rows."""

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.config.messages.words import name_list, show_count, verb_for
from pipelines.data.sources.text.records import Dialect, cut
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.refusals import check_rows_left
from pipelines.serving.batch.input_columns import Reads, _check_not_needed

NAMES = [f"column_{number}" for number in range(600)]


def test_few_names_are_all_shown_and_of_many_the_nearest() -> None:
    assert name_list(["a", "b"], "c") == "a, b"
    assert name_list(NAMES, "Column_599x").startswith("column_599, ")
    assert name_list(NAMES, "Column_599x").endswith(" and 596 more")
    assert name_list(NAMES) == "column_0, column_1, column_2, column_3 and 596 more"
    assert name_list(NAMES, "漢").endswith("column_3 and 596 more")


@pytest.mark.parametrize(("count", "text"), [(0, "0 rows are"), (1, "1 row is"), (1_200, "1,200 rows are")])
def test_a_count_agrees_with_its_noun_and_its_verb(count: int, text: str) -> None:
    assert f"{show_count(count, 'row')} {verb_for(count)}" == text


def test_a_wide_header_that_differs_is_told_by_its_first_difference() -> None:
    dialect = Dialect(header=True, columns=tuple(NAMES))
    header = ",".join([*NAMES[:400], "strange", *NAMES[401:]])
    with pytest.raises(SourceError) as error:
        list(cut([f"{header}\n".encode()], dialect, "a.csv"))
    assert "a.csv has columns 600, and its schema 600, which differ first at column 401: 'strange', not 'column_400'" in str(error.value)
    assert len(str(error.value)) < 400


def test_of_many_columns_that_an_input_lacks_a_few_are_named() -> None:
    lacking = {"t": StructType([StructField(name, StringType()) for name in NAMES])}
    with pytest.raises(ConfigError, match=r"has no column column_0, column_1, column_2, column_3 and 596 more, which source\.query needs"):
        _check_not_needed(lacking, Reads(frozenset(NAMES), frozenset()))


def test_what_removed_all_rows_is_said() -> None:
    check_rows_left({"t": 5}, 5, {"x": 4})
    with pytest.raises(SourceError, match=r"left for any split: source.query gives none of those that it reads \(t 5, u 1,000\)"):
        check_rows_left({"t": 5, "u": 1_000}, 0, {})
    with pytest.raises(SourceError, match=r"gives 5 rows, and all are refused; change source.expect.*\n  4 × plausible age\n  1 × split"):
        check_rows_left({"t": 5}, 5, {"plausible age": 4, "split: day is NULL": 1})
