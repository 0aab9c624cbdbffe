"""HTML of pages and results, for notebooks."""

from collections.abc import Iterable, Mapping
from html import escape


class HtmlPage(str):
    """A page as text, which a notebook shows in a frame of its own, since the page has its own style."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self)}" style="width: 100%; height: 45em; border: 1px solid #8884"></iframe>'


def html_summary(title: str, table: Mapping[str, str], lines: Iterable[str] = ()) -> str:
    """A title, a table of names and values, and lines below it. All of them are text."""
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in table.items())
    return f"<b>{escape(title)}</b><table>{rows}</table><p>{'<br>'.join(map(escape, filter(None, lines)))}</p>"


def metrics_table(metrics: Mapping[str, float]) -> dict[str, str]:
    """Metrics by name, with four decimals."""
    return {name: f"{value:.4f}" for name, value in sorted(metrics.items())}
