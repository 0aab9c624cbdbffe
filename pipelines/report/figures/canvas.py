"""The style of all figures, and how they become SVG. Nothing here depends on the time or on fonts of the machine."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from pipelines.report.charts import COLOURS, GREY, INK, LINE

INCHES = (3.7, 3.0)
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: small, and read by a screen reader
    "svg.hashsalt": "lockstep",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
}


class UndefinedError(Exception):
    """Reason why this data cannot give a figure."""


@dataclass
class Canvas:
    figure: Figure
    axes: list[Axes]
    svg: bytes = b""
    """The figure, once it is drawn."""
    margin: float = 0.17
    """Share of the width that is for the labels of the first axes."""
    top: float = 0.92
    """Where the axes end, as a share of the height."""


@contextmanager
def drawing(columns: int = 1, rows: int = 1, inches: tuple[float, float] = INCHES) -> Iterator[Canvas]:
    """One or several axes in the common style, to be drawn inside the `with` block; after it, the canvas has their SVG."""
    with rc_context(_STYLE):
        figure = Figure(figsize=inches)
        FigureCanvasSVG(figure)
        canvas = Canvas(figure, list(figure.subplots(rows, columns, squeeze=False).flat))
        yield canvas
        figure.subplots_adjust(left=canvas.margin / columns, right=0.97, top=canvas.top, bottom=0.2 / rows, wspace=0.2, hspace=0.35)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        canvas.svg = buffer.getvalue()


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def shorten(name: object, length: int = 14) -> str:
    text = "".join(sign if sign.isprintable() else "?" for sign in str(name)).replace("$", r"\$")
    return text if len(text) <= length else text[: length - 1] + "…"
