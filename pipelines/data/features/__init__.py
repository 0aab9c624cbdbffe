"""Encoders: Spark and the served model call the same functions, on Arrow arrays.

1. `raw`         converts columns of the query to numbers and to text. Nothing else does.
2. `statistics`  summarise a column of the training split. Sums are computed by `exact_sums`, independent of the order of rows; numbers
                 are sampled, and pieces of text counted, into which `text_pieces` and `byte_words` split it.
3. `base`        is the base class of encoders. They are in `numbers`, `categories`, `text_encoders` and `arrays` with images, and those
                 of weights, counts, labels and several numbers in `targets`. Further ones are in `pipelines.applications`.
4. `media_files` say what a file is and how a picture is turned; `picture_files` are read for annotations.
5. `auto`        chooses encoders, for `auto` and for `lockstep init`.
6. `encoding`    makes `FittedEncoder` records for the manifest from settings and statistics. `row_encoders` applies them to raw rows,
                 with a reason for each row that is refused.
"""

from pipelines.data.features.encoding import ENCODERS_VERSION, Encoders, check_columns, encoder_notes, fit_encoders, needs, restore_encoder
from pipelines.data.features.row_encoders import refusal_kind

__all__ = ["ENCODERS_VERSION", "Encoders", "check_columns", "encoder_notes", "fit_encoders", "needs", "refusal_kind", "restore_encoder"]
