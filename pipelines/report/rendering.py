"""Renders the templates of all pages.

A template prints text escaped, so that no string of a user becomes markup, and numbers in the form of `readable`.
Some values have a form of their own: `show` in `templates/parts.html` has the markup of each.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Literal

from jinja2 import Environment
from markupsafe import Markup

from pipelines.report import charts
from pipelines.report.charts import LineChart, tick_label
from pipelines.report.figures.class_curves import wilson
from pipelines.runtime.templates import template_environment

_SECTION = re.compile(r'<section id="[^"]*"><h2>(.*?)</h2>')


class Code(str):
    """A digest or an expression, in letters of equal width."""


@dataclass(frozen=True)
class Best:
    """The best value of several, in bold."""

    value: object


@dataclass(frozen=True)
class Share:
    """A share from 0 to 1, as a bar."""

    share: float


@dataclass(frozen=True)
class Note:
    """A marked paragraph."""

    text: str
    kind: Literal["", "warning", "good"] = ""


@dataclass(frozen=True)
class Picture:
    """A picture inside the page."""

    content: bytes
    alternative: str
    """Text that says what it shows."""
    kind: Literal["png", "svg+xml"] = "png"
    width: int = 0
    """Pixels; 0 for as wide as there is room."""

    @property
    def source(self) -> str:
        return f"data:image/{self.kind};base64,{b64encode(self.content).decode()}"


@dataclass(frozen=True)
class PageTable:
    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """A picture or a chart, or a note in its place."""

    content: object
    caption: str = ""
    letter: str = ""
    """The letter of the run, on a page of several."""


Facts = list[tuple[str, object]]
"""Names with their values."""


def number_columns(rows: Sequence[Sequence[object]]) -> set[int]:
    """Columns with numbers alone, and with reasons why there is none."""
    columns = set()
    for column in range(max(map(len, rows), default=0)):
        cells = [row[column] for row in rows if column < len(row)]
        values = [cell.value if isinstance(cell, Best) else cell for cell in cells]
        present = [value for value in values if value is not None and not (isinstance(value, str) and value.startswith("undefined: "))]
        if present and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
            columns.add(column)
    return columns


def render(template: str, **values: object) -> str:
    """A page, from a template in the folder `templates`."""
    return page_environment().get_template(template).render(values)


@cache
def page_environment() -> Environment:
    """The constants of `charts`, filters by their functions' names, and tests of kinds of values, such as `value is code`."""
    environment = template_environment("pipelines.report", printed=readable)
    environment.globals |= {name: value for name, value in vars(charts).items() if name.isupper() and not name.startswith("_")}
    environment.globals["wilson"] = wilson
    for function in (anchor, number_columns, percentage, px, section_titles, tick_label):
        environment.filters[function.__name__] = function
    kinds = {"best": Best, "code": Code, "line_chart": LineChart, "note": Note, "picture": Picture, "share": Share, "table": PageTable}
    environment.tests |= {name: lambda value, kind=kind: isinstance(value, kind) for name, kind in kinds.items()}
    return environment


def readable(value: object) -> str:
    """A value as people read it: numbers with thousands separators or four significant digits, None as a dash.

    Text stays as it is, except for signs that cannot be printed.
    """
    if isinstance(value, Markup):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return "".join(sign if sign.isprintable() or sign in "\n\t" else "\N{REPLACEMENT CHARACTER}" for sign in str(value))
    if not isfinite(value):
        return {"nan": "undefined", "inf": "∞", "-inf": "−∞"}[str(value)]
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        digits = f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    else:
        digits = f"{value:.3g}"
    return digits.replace("-", "−")


def percentage(share: float, digits: int = 0) -> str:
    return f"{share:.{digits}%}"


def px(value: float) -> str:
    """A coordinate of a chart, in pixels."""
    return f"{value:.1f}".removesuffix(".0")


def anchor(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower(), flags=re.ASCII).strip("-")


def section_titles(body: str) -> list[Markup]:
    """Titles of the sections in a rendered page, for its contents."""
    return [Markup(title) for title in _SECTION.findall(body)]
