"""Charts of pages: where lines, bars and labels stand, in pixels. `templates/charts.html` draws them as inline SVG.

1. `lines`         are curves over a shared axis, with marks.
2. `distributions` are a column's values in each split: bins of numbers, or categories.

Their text keeps its size on a telephone: a chart is 340 units wide, about its width in pixels.
"""

CHART_WIDTH = 340
