"""HTML of a page that is one file: no scripts, no fonts, nothing that is fetched.

    page("Digits", [section("Rows", [table(["split", "rows"], [["train", 1437], ["test", 180]])])])

Every argument is text, which is escaped, or `Html`, which these functions return and which stays as it is.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from math import isfinite
from typing import Literal

from pipelines.report.style import SHEET

# Besides what is in the file, a page may load nothing: the browser itself refuses it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Html(str):
    """Text that is HTML already."""


Part = object
"""What a page shows: `Html`, or any value, which is written as `text` does."""


def text(value: Part) -> Html:
    """A value as HTML: numbers with thousands separators or four significant digits, None as a dash, all else escaped."""
    if isinstance(value, Html):
        return value
    if isinstance(value, bool):
        return Html("yes" if value else "no")
    if value is None:
        return Html("–")
    if isinstance(value, int):
        return Html(f"{value:,}")
    if isinstance(value, float):
        return Html(_number(value))
    return Html(escape("".join(sign if sign.isprintable() or sign in "\n\t" else "\N{REPLACEMENT CHARACTER}" for sign in str(value))))


def _number(value: float) -> str:
    if not isfinite(value):
        return {"nan": "undefined", "inf": "∞", "-inf": "−∞"}[str(value)]
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        shown = f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    else:
        shown = f"{value:.3g}"
    return shown.replace("-", "−")


def join(parts: Iterable[Part], between: str = "\n") -> Html:
    return Html(between.join(text(part) for part in parts))


def element(tag: str, *parts: Part, kind: str = "") -> Html:
    """`<tag class="kind">parts</tag>`."""
    return Html(f"<{tag}{f' class={escape(kind)!r}' if kind else ''}>{join(parts, '')}</{tag}>")


def page(title: str, body: Iterable[Part], lead: Part = "") -> Html:
    """The whole file. `lead` is a line below the title."""
    head = element("header", element("h1", title), element("p", lead, kind="lead"))
    return Html(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<link rel="icon" href="data:,"><title>{text(title)}</title><style>{SHEET}</style></head>\n'
        f"<body><main>{join([head, *body])}</main></body></html>\n"
    )


def section(title: str, parts: Iterable[Part]) -> Html:
    """A heading and what belongs to it; `#anchor(title)` leads there."""
    return Html(f'<section id="{anchor(title)}">{element("h2", title)}\n{join(parts)}</section>')


def anchor(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower(), flags=re.ASCII).strip("-")


def contents(titles: Iterable[str]) -> Html:
    """Links to sections with these titles."""
    return element("nav", join((Html(f'<a href="#{anchor(title)}">{text(title)}</a>') for title in titles), " "))


def table(header: Sequence[Part], rows: Iterable[Sequence[Part]], caption: Part = "") -> Html:
    """A table that scrolls by itself where the page is narrow. A column with only numbers, and where they are
    undefined, is aligned to the right."""
    rows = [list(row) for row in rows]
    numeric = [_is_numeric([row[place] for row in rows if place < len(row)]) for place in range(len(header))]

    def cells(tag: str, values: Sequence[Part]) -> Html:
        return element("tr", *(element(tag, value, kind="number" if numeric[place] else "") for place, value in enumerate(values)))

    head = element("thead", cells("th", header)) if any(header) else ""
    scrolled = element("div", element("table", Html(head), element("tbody", *(cells("td", row) for row in rows))), kind="scroll")
    return element("div", element("div", caption, kind="caption"), scrolled) if caption else scrolled


def _is_numeric(values: list[Part]) -> bool:
    known = [value for value in values if value is not None and not (isinstance(value, str) and value.startswith("undefined: "))]
    return bool(known) and all(_is_number(value) for value in known)


def _is_number(value: Part) -> bool:
    if isinstance(value, Html):
        return re.fullmatch(r"<b>−?[\d.,]+(e[−+]?\d+)?</b>", value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def facts(pairs: Iterable[tuple[str, Part]]) -> Html:
    """A table of two columns: what, and its value; where the page is narrow, the value stands below."""
    rows = (element("tr", element("td", element("b", name)), element("td", value)) for name, value in pairs)
    return element("div", element("table", element("tbody", *rows), kind="facts"), kind="scroll")


def tiles(pairs: Iterable[tuple[str, Part]]) -> Html:
    """The most important values in large print, each above its name."""
    return element("div", *(element("div", element("b", value), element("span", name), kind="tile") for name, value in pairs), kind="tiles")


def note(*parts: Part, kind: Literal["", "warning", "good"] = "") -> Html:
    """A marked paragraph."""
    return element("div", *parts, kind=f"note {kind}".strip())


def figure(picture: Html, caption: Part = "") -> Html:
    return element("figure", picture, element("figcaption", caption) if caption else "")


def grid(figures: Iterable[Part]) -> Html:
    """Figures side by side, as many as the page is wide for."""
    return element("div", *figures, kind="grid")


def image(content: bytes, alternative: str, kind: Literal["png", "svg+xml"] = "png", width: int = 0) -> Html:
    """A picture inside the page; `alternative` says what it shows. `width` in pixels, by default as wide as there is room."""
    size = f' width="{width}"' if width else ""
    return Html(f'<img alt="{text(alternative)}"{size} src="data:image/{kind};base64,{b64encode(content).decode()}">')


def folded(summary: Part, *parts: Part) -> Html:
    """What is shown only after a click on the summary."""
    return element("details", element("summary", summary), *parts)
