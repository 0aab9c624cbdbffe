"""Figures of forecasts."""

import numpy as np

from pipelines.report.charts import BLUE, GREY, LINE, ORANGE
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.canvas import UndefinedError, colour, drawing

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
    svg, rows, colours = _draw_forecasts(split, "forecasts")
    return svg, f"Forecasts of {rows}, chosen by their numbers; {colours}."


def worst_forecasts(split: SplitEvaluation) -> tuple[bytes, str]:
    svg, rows, colours = _draw_forecasts(split, "worst_forecasts")
    return svg, f"The worst forecasts, of {rows}; {colours}."


def _draw_forecasts(split: SplitEvaluation, name: str) -> tuple[bytes, str, str]:
    """The figure of a table, which rows it has, and what its colours mean."""
    table = split.tables.get(name)
    if not table or not table["row"]:
        raise UndefinedError("no row was forecast")
    rows, series, step = (np.array(table[column]) for column in ("row", "series", "step"))
    columns = [column for column in ("true", "predicted", "low", "high") if column in table]
    values = {column: np.array([np.nan if value is None else value for value in table[column]], float) for column in columns}
    every_row = list(dict.fromkeys(rows.tolist()))
    first_rows, horizon = every_row[:4], int(step.max())
    with drawing(rows=len(first_rows), inches=(3.7, 1.4 * len(first_rows) + 0.4)) as canvas:
        for axes, row in zip(canvas.axes, first_rows, strict=False):
            for number in sorted(set(series.tolist()))[:2]:
                chosen = (rows == row) & (series == number) & (step > -HISTORY_LENGTH * horizon)
                forecast_colour = BLUE if number == 0 else ORANGE if number == 1 else colour(number)
                axes.plot(step[chosen], values["true"][chosen], color=GREY if number == 0 else LINE, linewidth=1)
                axes.plot(step[chosen], values["predicted"][chosen], color=forecast_colour)
                if "low" in values:
                    bounds = values["low"][chosen], values["high"][chosen]
                    axes.fill_between(step[chosen], *bounds, color=forecast_colour, alpha=0.2, linewidth=0)
            axes.set_title(f"row {row:,}", loc="left")
    band = ", and a band is between the outermost quantiles" if "low" in values else ""
    return canvas.svg, "rows " + ", ".join(f"{row:,}" for row in every_row), f"grey is the truth{band}"


FIGURES = {"forecast": (errors_by_step, forecasts, worst_forecasts)}
