"""Row counts of all stages: a version whose counts disagree is not committed."""

from collections.abc import Iterator

from pipelines.config.section import Section
from pipelines.errors import DatasetError


class TableBalance(Section):
    parsed: int
    """Records in the table's files."""
    handed_on: int
    """Valid records, which the query reads."""
    refused: int
    """The others, in the quarantine."""


class Balance(Section):
    """Three stages count rows: parsing, fitting on the query's rows, and writing."""

    tables: dict[str, TableBalance] = {}
    query: int
    """Rows that the query gave."""
    taken: int
    """Rows that every encoder accepted."""
    refused: int
    """The others, in the quarantine."""
    made: int
    """Rows expected in the parts: the same number, or the number of windows that documents are cut into."""

    @property
    def parsed(self) -> int:
        """Records of all tables, or the query's rows if it reads no table."""
        return sum(table.parsed for table in self.tables.values()) or self.query


def check_balance(balance: Balance, in_parts: int, in_quarantine: int) -> None:
    """Raises DatasetError, with the numbers, if a row is lost or comes twice. `in_parts` and `in_quarantine` are the rows
    of the files that a version names."""
    if faults := list(_faults(balance, in_parts, in_quarantine)):
        raise DatasetError(
            f"rows do not balance, so that nothing is committed: {'; '.join(faults)}; run again, and if it happens again, "
            "look for what in source.query or source.expect gives other rows each time it is computed"
        )


def _faults(balance: Balance, in_parts: int, in_quarantine: int) -> Iterator[str]:
    for name, table in balance.tables.items():
        if table.parsed != table.handed_on + table.refused:
            yield f"{table.parsed:,} records of {name} were parsed, {table.handed_on:,} handed on and {table.refused:,} refused"
    if balance.query != balance.taken + balance.refused:
        yield f"the query gave {balance.query:,} rows, of which {balance.taken:,} were taken and {balance.refused:,} refused"
    if balance.made != in_parts:
        yield f"{balance.taken:,} rows taken make {balance.made:,} rows, and the parts hold {in_parts:,}"
    refused = balance.refused + sum(table.refused for table in balance.tables.values())
    if refused != in_quarantine:
        yield f"{refused:,} rows were refused, and the quarantine holds {in_quarantine:,}"
