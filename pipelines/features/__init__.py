"""Encoders: one transform, two engines. Spark and the served model call the very same functions, on Arrow arrays.

1. `statistics`  what a column of the training split looked like: exact, whatever the order of its rows.
2. `base`        what an encoder is, and how it is fitted, kept and restored.
3. `numbers`, `categories`, `arrays`   the encoders.

`fit_encoders` turns settings and statistics into `Encoded` records for the manifest; `Encoders` applies them.
"""
