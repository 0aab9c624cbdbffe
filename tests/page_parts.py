"""HTML of parts of a page, from the templates of `pipelines.report`."""

from pipelines.report.rendering import page_environment

IMPORTS = """
{% from "charts.html" import distribution, legend %}
{% from "parts.html" import facts, folded, grid, note, section, show, table, tiles %}
"""


def render_text(text: str, **values: object) -> str:
    """The template `text`, which may use every macro of the pages. One with blocks extends a page."""
    first, _, blocks = text.partition("\n") if text.startswith("{% extends") else ("", "", text)
    return page_environment().from_string(first + IMPORTS + blocks).render(values)


def render_parts(*parts: object) -> str:
    return render_text("{% for part in parts %}{{ show(part) }}{% endfor %}", parts=parts)
