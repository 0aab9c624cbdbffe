"""How numbers, money and dates are written in files: each form writes a value as text."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Form:
    """A way to write the values of a column, which are floats or datetimes."""

    name: str
    write: Callable[[Any], str]
    decimals: int = 2
    """Digits after the point that a number has."""
    has_time: bool = True
    """Whether it writes the time of day; without, only the day is compared."""


def _group_digits(separator: str, point: str) -> Callable[[float], str]:
    """Digits in groups of three: 1234567.5 as 1.234.567,50."""
    return lambda value: f"{value:,.2f}".translate({ord(","): separator, ord("."): point})


def _format_moment(pattern: str) -> Callable[[datetime], str]:
    return lambda moment: moment.strftime(pattern)


def _indian(value: float) -> str:
    """Digits in a group of three and groups of two: 1234567.5 as 12,34,567.50."""
    digits, decimals = f"{abs(value):.2f}".split(".")
    groups, higher = [digits[-3:]], digits[:-3]
    while higher:
        groups, higher = [higher[-2:], *groups], higher[:-2]
    return f"{'-' if value < 0 else ''}{','.join(groups)}.{decimals}"


NUMBERS = (
    Form("1,234 whole", lambda value: f"{value:,.0f}", decimals=0),
    Form("1,234.50", _group_digits(",", ".")),
    Form("1.234,50", _group_digits(".", ",")),
    Form("1234,50", lambda value: f"{value:.2f}".replace(".", ",")),
    Form("1 234.50", _group_digits(" ", ".")),
    Form("1 234,50", _group_digits("\N{NO-BREAK SPACE}", ",")),
    Form("1'234.50", _group_digits("'", ".")),
    Form("$1,234.50", lambda value: f"{'-' if value < 0 else ''}${abs(value):,.2f}"),
    Form("$1,234", lambda value: f"{'-' if value < 0 else ''}${abs(value):,.0f}", decimals=0),
    Form("1.234,50 €", lambda value: f"{_group_digits('.', ',')(value)} €"),
    Form("EUR 1234.50", lambda value: f"EUR {value:.2f}"),
    Form("12.3%", lambda value: f"{value:.2f}%"),
    Form("(45.10)", lambda value: f"({-value:.2f})" if value < 0 else f"{value:.2f}"),
    Form("45.10-", lambda value: f"{-value:.2f}-" if value < 0 else f"{value:.2f}"),
    Form("1.50k", lambda value: f"{value / 1000:.2f}k", decimals=-1),
    Form("($1,234.50)", lambda value: f"(${-value:,.2f})" if value < 0 else f"${value:,.2f}"),
    Form("−1234.50", lambda value: f"{value:.2f}".replace("-", "−")),
    Form("12,34,567.50", _indian),
    Form("1.5e+03", lambda value: f"{value:.6e}"),
)
DATES = (
    Form("2024-05-06", _format_moment("%Y-%m-%d"), has_time=False),
    Form("2024/05/06", _format_moment("%Y/%m/%d"), has_time=False),
    Form("06.05.2024", _format_moment("%d.%m.%Y"), has_time=False),
    Form("06/05/2024", _format_moment("%d/%m/%Y"), has_time=False),
    Form("05/06/2024", _format_moment("%m/%d/%Y"), has_time=False),
    Form("20240506", _format_moment("%Y%m%d"), has_time=False),
    Form("6 May 2024", lambda moment: f"{moment.day} {moment:%b %Y}", has_time=False),
    Form("May 6, 2024", lambda moment: f"{moment:%B} {moment.day}, {moment.year}", has_time=False),
    Form("2024-05-06 07:08:09", _format_moment("%Y-%m-%d %H:%M:%S")),
    Form("2024-05-06T07:08:09Z", _format_moment("%Y-%m-%dT%H:%M:%SZ")),
    Form("2024-05-06T07:08:09.000Z", _format_moment("%Y-%m-%dT%H:%M:%S.000Z")),
    Form("2024-05-06T07:08:09+00:00", _format_moment("%Y-%m-%dT%H:%M:%S+00:00")),
    Form("2024-05-06 07:08:09 UTC", _format_moment("%Y-%m-%d %H:%M:%S UTC")),
    Form("06-May-2024 07:08", _format_moment("%d-%b-%Y %H:%M")),
    Form("20240506T070809", _format_moment("%Y%m%dT%H%M%S")),
    Form("5/6/2024 7:08", lambda moment: f"{moment.month}/{moment.day}/{moment.year} {moment.hour}:{moment:%M}"),
    Form("2024/05/06 07:08", _format_moment("%Y/%m/%d %H:%M")),
    Form("06/05/2024 07:08", _format_moment("%d/%m/%Y %H:%M")),
    Form("06.05.2024 07:08", _format_moment("%d.%m.%Y %H:%M")),
    Form("05/06/2024 07:08 AM", _format_moment("%m/%d/%Y %I:%M %p")),
)
