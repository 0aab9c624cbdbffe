"""Renders the templates of all pages.

A template prints text escaped, so that no string of a user becomes markup, and numbers in the form of `readable`.
"""

import re
from functools import cache
from math import isfinite

from jinja2 import Environment
from markupsafe import Markup

from pipelines.report import style
from pipelines.report.charts import LineChart, tick_label
from pipelines.report.figures.curves import wilson
from pipelines.report.parts import Best, Code, Note, PageTable, Picture, Share, number_columns
from pipelines.runtime.templates import template_environment

_KINDS = {"best": Best, "code": Code, "line_chart": LineChart, "note": Note, "picture": Picture, "share": Share, "table": PageTable}
"""Tests of templates, such as `value is code`."""
_SECTION = re.compile(r'<section id="[^"]*"><h2>(.*?)</h2>')


def render(template: str, **values: object) -> str:
    """A page, from a template in the folder `templates`."""
    return page_environment().get_template(template).render(values)


@cache
def page_environment() -> Environment:
    environment = template_environment("pipelines.report", printed=readable)
    environment.globals |= {name: value for name, value in vars(style).items() if name.isupper()} | {"wilson": wilson}
    environment.filters |= {
        "anchor": _anchor,
        "number_columns": number_columns,
        "percent": _percent,
        "px": _pixels,
        "section_titles": _section_titles,
        "tick_label": tick_label,
    }
    environment.tests |= {name: lambda value, kind=kind: isinstance(value, kind) for name, kind in _KINDS.items()}
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
    if isinstance(value, float):
        return _number(value)
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "\N{REPLACEMENT CHARACTER}" for sign in str(value))


def _number(value: float) -> str:
    if not isfinite(value):
        return {"nan": "undefined", "inf": "∞", "-inf": "−∞"}[str(value)]
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        digits = f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    else:
        digits = f"{value:.3g}"
    return digits.replace("-", "−")


def _percent(share: float, digits: int = 0) -> str:
    return f"{share:.{digits}%}"


def _pixels(value: float) -> str:
    """A coordinate of a chart."""
    return f"{value:.1f}".removesuffix(".0")


def _anchor(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower(), flags=re.ASCII).strip("-")


def _section_titles(body: str) -> list[Markup]:
    """Titles of the sections in a rendered page, for its contents."""
    return [Markup(title) for title in _SECTION.findall(body)]
