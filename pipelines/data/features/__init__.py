"""Encoders: Spark and the served model call the same functions, on Arrow arrays.

1. `raw`         converts columns of the query to numbers and to text. Nothing else does.
2. `statistics`  summarise a column of the training split. Sums are computed by `exact_sums`, independent of the order of rows;
                 numbers are sampled (`sample`), and pieces of text counted.
3. `base`        is the base class of encoders, which describe themselves with `phrases`. They are in `numbers`, `categories`, `text`,
                 `arrays` with images, which `orientation` turns; `media` reads pictures; `targets` are weights, counts, labels and several
                 numbers. Further encoders are in `pipelines.applications`.
4. `auto`        chooses encoders, for `auto` and for `lockstep init`.
5. `encoding`    makes `FittedEncoder` records for the manifest from settings and statistics. `row_encoders` applies them to raw rows,
                 with a reason for each row that is refused.
"""

from pipelines.data.features.encoding import (
    ENCODERS_VERSION,
    Encoders,
    check_columns,
    encoder_notes,
    fit_encoders,
    needs,
    restore_encoder,
)
from pipelines.data.features.row_encoders import refusal_kind

__all__ = ["ENCODERS_VERSION", "Encoders", "check_columns", "encoder_notes", "fit_encoders", "needs", "refusal_kind", "restore_encoder"]
