"""Encoders: one transform, two engines. Spark and the served model call the very same functions, on Arrow arrays.

1. `raw`         the query's columns as numbers and as text: the one place where they are converted.
2. `statistics`  what a column of the training split looked like: sums are `exact_sums`, whatever the order of its rows.
                 Of numbers it keeps a `sample`; of text, its `pieces` may be counted.
3. `base`        what an encoder is; `numbers`, `quantiles`, `fourier`, `categories`, `sequences`, `arrays`, `audio`
                 are the encoders, and those whose rows multiply `tokens` and `bpe`.
4. `fitting`     settings and statistics become `FittedEncoder` records for the manifest.
5. `encoding`    `FittedEncoder` records turn raw rows into tensor columns, and give a reason for each row they refuse.
"""

from pipelines.features.encoding import ENCODERS_VERSION, Encoders, kind_of, restored
from pipelines.features.fitting import check_columns, fit_encoders, needs

__all__ = ["ENCODERS_VERSION", "Encoders", "check_columns", "fit_encoders", "kind_of", "needs", "restored"]
