"""Figures of a run, each a pure function of the data in its folder `evaluation`: equal data give equal bytes.

1. `canvas`    is the style of all figures, and how they become SVG.
2. `classes`   draws confusion, ROC and precision-recall curves, and calibration; `class_curves` computes these from counts.
3. `quantities` draws predicted against true values, residuals, and how much a model rests on each feature.
4. `worst`     draws the most wrong rows that are pictures.
5. `searches`  draws the trials of a search: their settings, their curves, and how much each setting decides.
6. `plans`     draws the candidates of a plan: what steps and memory consist of, hours and costs.
7. `svg_figures` draws all figures of a split. One that cannot be drawn says why, and the others are drawn. Figures of an
   application stand in its folder.
"""
