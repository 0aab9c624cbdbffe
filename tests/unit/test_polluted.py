"""Tables that are polluted in every way: drafts and ETL give the clean rows, or refuse the file with the line and the reason."""

from collections import Counter
from pathlib import Path

import pytest
from polluted.forms import DATES, NUMBERS
from polluted.outcomes import judge
from polluted.pollutions import RECORD_POLLUTIONS, Style, all_cases, clean_tables, pollute_file, pollute_record, write_in_form

from pipelines.errors import SourceError
from pipelines.init.tables.find_table import find_table

LEAST_GOOD = 0.98


@pytest.mark.parametrize("pollution", RECORD_POLLUTIONS)
def test_a_broken_record_costs_no_other(pollution: str, tmp_path: Path) -> None:
    """Of each clean table one record, wherever it stands; in every second one all values are quoted."""
    for number, clean in enumerate(clean_tables()):
        row = (0, 149, 74, -1, 2)[number % 5]
        polluted = pollute_record(clean, Style(quotes_all=number % 2 == 0), pollution, row, number)
        outcome = judge(polluted, tmp_path)
        assert outcome.is_good, (polluted.case, outcome)


@pytest.mark.parametrize("name", ["numbers", "texts", "categories"])
def test_lines_that_are_no_rows_are_none(name: str, tmp_path: Path) -> None:
    clean = next(clean for clean in clean_tables() if clean.name == name)
    outcomes = {polluted.pollution: judge(polluted, tmp_path) for polluted in pollute_file(clean, Style(), 60)}
    assert not {pollution: outcome for pollution, outcome in outcomes.items() if not outcome.is_good and outcome.kind != "said"}


def test_every_form_of_numbers_and_dates_is_read(tmp_path: Path) -> None:
    clean = next(clean for clean in clean_tables() if clean.name == "few columns")
    outcomes = {form.name: judge(write_in_form(clean, form, "value", Style()), tmp_path) for form in (*NUMBERS, *DATES)}
    assert {name: outcome for name, outcome in outcomes.items() if outcome.kind != "right"} == {}


@pytest.mark.full
def test_nearly_all_polluted_tables_are_read_rightly_and_none_is_silently_wrong(tmp_path: Path) -> None:
    kinds = Counter((polluted.pollution, judge(polluted, tmp_path).kind) for polluted in all_cases())
    good = sum(count for (_, kind), count in kinds.items() if kind in ("right", "refused"))
    assert kinds.total() >= 3_000 and good >= LEAST_GOOD * kinds.total(), kinds
    assert not [pollution for pollution, kind in kinds if kind == "silently wrong"]


def write_rows(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_one_stray_quote_among_quoted_values(tmp_path: Path) -> None:
    lines = [f'"{number}","Paris","4{number % 10}.1","{number % 2}"' for number in range(2_000)]
    lines[1_000] = '"1000","Pa"ris","49.1","0"'
    table = find_table(write_rows(tmp_path / "t.csv", ['"id","city","area","left"', *lines]))
    assert table is not None and table.settings["schema"] == "id int, city string, area double, left int".replace("left", "`left`")
    assert table.settings["options"] == {"header": True} and len(table.columns[0].typed.values) == 1_999
    assert any("line 1,002: quote that is stray" in doubt for doubt in table.doubts)


def test_columns_in_another_order_are_named(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.csv", ["a,b", *(f"{number},x" for number in range(30))])
    write_rows(tmp_path / "b.csv", ["b,a", *(f"x,{number}" for number in range(30))])
    with pytest.raises(SourceError, match=r"b\.csv has the columns of .*a\.csv in another order: column 1 is b, not a"):
        find_table(str(tmp_path))


def test_lines_that_the_user_names_are_skipped(tmp_path: Path) -> None:
    rows = [f"{number},{number / 8}" for number in range(30)]
    path = write_rows(tmp_path / "t.csv", ["2019,2020", "a,b", *rows])
    table = find_table(path, skip_rows=1)
    assert table is not None and table.settings["options"] == {"skipRows": 1, "header": True}
    broken = write_rows(tmp_path / "broken.csv", ["a,b,c", *rows])
    with pytest.raises(SourceError, match=r"line 1 has 3 values, and most have 2, .* or leave it out with --skip-rows 1"):
        find_table(broken)
    table = find_table(broken, skip_rows=1)
    assert table is not None and [column.name for column in table.columns] == ["c1", "c2"]
