"""All figures of a split."""

from collections.abc import Callable
from dataclasses import dataclass

from pipelines.config.slices import slice_modules
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures import classes, quantities, worst
from pipelines.report.figures.canvas import UndefinedError

Draw = Callable[[SplitEvaluation], tuple[bytes, str]]
"""Returns the SVG, and a sentence that says what it shows. Raises UndefinedError."""

_CLASS_FIGURES: tuple[Draw, ...] = (classes.confusion, classes.roc, classes.precision_recall, classes.calibration)
_CORE_FIGURES: dict[str, tuple[Draw, ...]] = {
    "binary": _CLASS_FIGURES,
    "classes": _CLASS_FIGURES,
    "quantity": (quantities.predictions_against_truth, quantities.residuals),
}
"""By kind of details."""


def kind_figures(kind: str) -> tuple[Draw, ...]:
    """The figures of a kind of details, the core's or those in `FIGURES` of a slice's module `figures`."""
    by_kind: dict[str, tuple[Draw, ...]] = dict(_CORE_FIGURES)
    for module in slice_modules("figures").values():
        by_kind |= module.FIGURES
    return by_kind.get(kind, ())


@dataclass(frozen=True)
class SvgFigure:
    """A figure as SVG."""

    name: str
    svg: bytes
    """Empty if the figure is undefined."""
    caption: str
    """What it shows, or why it is undefined."""


def draw_figures(split: SplitEvaluation) -> list[SvgFigure]:
    """Draw every figure of the split's kind."""
    draws = list(kind_figures(split.kind))
    if split.summary.get("shapes") and split.kind in _CORE_FIGURES:
        draws.append(worst.worst_pictures)
    if "importance" in split.tables:
        draws.append(quantities.importance)
    figures = []
    for draw in draws:
        name = draw.__name__
        words = name.replace("_", " ")
        try:
            figures.append(SvgFigure(name, *draw(split)))
        except UndefinedError as reason:
            figures.append(SvgFigure(name, b"", f"{words}: {reason}"))
        except Exception as error:  # of one figure of many, and only of a figure
            figures.append(SvgFigure(name, b"", f"{words} could not be drawn: {type(error).__name__}: {error}"))
    return figures
