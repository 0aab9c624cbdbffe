"""Figures of forecasts."""

import numpy as np

from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.canvas import UndefinedError, colour, drawing
from pipelines.report.style import BLUE, GREY, LINE, ORANGE

HISTORY_LENGTH = 2
"""Times the horizon."""


def errors_by_step(split: SplitEvaluation) -> tuple[bytes, str]:
    table = split.tables.get("horizon")
    if not table:
        raise UndefinedError("no row was forecast")
    with drawing() as canvas:
        axes = canvas.axes[0]
        axes.plot(table["step"], table["repeated"], color=GREY, linestyle="--", label="repeating the last value")
        axes.plot(table["step"], table["squared"], color=BLUE, label="forecast")
        axes.set(xlabel="step ahead", ylabel="mean squared error", ylim=(0, None))
        axes.legend(loc="upper left")
    return canvas.svg, "Error by step ahead, in encoded units, beside that of repeating the last value."


def forecasts(split: SplitEvaluation) -> tuple[bytes, str]:
    return _draw_forecasts(split, "forecasts"), f"Forecasts of {_rows(split, 'forecasts')}, chosen by their numbers; grey is the truth."


def worst_forecasts(split: SplitEvaluation) -> tuple[bytes, str]:
    return _draw_forecasts(split, "worst_forecasts"), f"The worst forecasts, of {_rows(split, 'worst_forecasts')}; grey is the truth."


def _rows(split: SplitEvaluation, name: str) -> str:
    return "rows " + ", ".join(f"{row:,}" for row in dict.fromkeys(split.tables[name]["row"]))


def _draw_forecasts(split: SplitEvaluation, name: str) -> bytes:
    table = split.tables.get(name)
    if not table or not table["row"]:
        raise UndefinedError("no row was forecast")
    rows, series, step = (np.array(table[column]) for column in ("row", "series", "step"))
    true, predicted = (np.array([np.nan if value is None else value for value in table[column]], float) for column in ("true", "predicted"))
    first_rows = list(dict.fromkeys(rows.tolist()))[:4]
    horizon = int(step.max())
    with drawing(rows=len(first_rows), inches=(3.7, 1.4 * len(first_rows) + 0.4)) as canvas:
        for axes, row in zip(canvas.axes, first_rows, strict=False):
            for number in sorted(set(series.tolist()))[:2]:
                chosen = (rows == row) & (series == number) & (step > -HISTORY_LENGTH * horizon)
                axes.plot(step[chosen], true[chosen], color=GREY if number == 0 else LINE, linewidth=1)
                axes.plot(step[chosen], predicted[chosen], color=BLUE if number == 0 else ORANGE if number == 1 else colour(number))
            axes.set_title(f"row {row:,}", loc="left")
    return canvas.svg
