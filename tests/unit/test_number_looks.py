"""The cheap looks at whole records find every number that Spark reads and that is none."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import DoubleType, FloatType, IntegerType, LongType

from pipelines.data.sources.text.json import LARGE_NUMBER, STRANGE_DECIMAL
from pipelines.data.sources.text.type_checks import doubt

JAVAS = ("12D", "7f", "1.d", "0x1p4", "0X1P4", "1\x0b", "\x1f1")
DIGITS = ("٣", "١٫٥", "１２", "1\u0967", "\U0001d7d9", "\U00010d40")
USUAL = ("", "1", "-1.5e-3", "12Dx", "3rd", "word1", "1 d", "größe 1", "漢字 5", "½", "😀", "\t1", "d", "f,x")


def finds(expression: str, *records: str) -> list[bool]:
    return pc.match_substring_regex(pa.array(records), expression).to_pylist()


@pytest.mark.parametrize("around", ["{}", "a,{},b", '"{}"', "{}\n"])
def test_a_record_with_a_number_of_java_or_of_another_script_is_in_doubt(around: str) -> None:
    for kinds in ([DoubleType()], [IntegerType(), FloatType()]):
        assert finds(doubt(kinds), *map(around.format, (*JAVAS, *DIGITS))) == [True] * len(JAVAS + DIGITS)
    assert finds(doubt([LongType()]), *map(around.format, DIGITS)) == [True] * len(DIGITS)
    if "\n" not in around:
        assert finds(doubt([DoubleType()]), *map(around.format, USUAL)) == [False] * len(USUAL)
    assert finds(doubt([LongType()]), *map(around.format, (*USUAL, *JAVAS))) == [False] * len(USUAL + JAVAS)


def test_a_json_record_with_a_float_too_large_or_a_strange_decimal_is_looked_at() -> None:
    large = ('"INF"', '"-Infinity"', "1e39", "1E+400", "3.5e38", "1" + "0" * 39, "1" + "0" * 33 + "e9", "0.1e0400")
    assert finds(LARGE_NUMBER, *large) == [True] * len(large)
    assert finds(LARGE_NUMBER, "1e5", "12.5", "1e-40", "12345678901234567890") == [False] * 4
    strange = ('"1,234"', '",5"', '"5,"', '"٣"', r'"1\u0663"', '"1e3,"', '"\U00010d40"')
    assert finds(STRANGE_DECIMAL, *strange) == [True] * len(strange)
    assert finds(STRANGE_DECIMAL, '"a", 1, "b"', '"a","b"', '"1.5"', "1,2", '","', '"größe"', r'"a\u0663"') == [False] * 7
