"""The served model in MLflow: it predicts from raw rows, with the encoders that ETL fitted.

1. `column_casts`   converts the columns of rows to those that the model takes, by one rule for all ways in.
2. `predictor`      encodes raw rows, runs the model on the rows that the encoders accept, and gives a reason for each other row.
   `series_windows` makes the columns of `source.windows` from the last rows of series.
3. `logged_model`   logs config, manifest, weights and code as the model of a run, with a digest of every file, and loads such models.
4. `entry`          is the code that MLflow stores with the model and runs to load it; it verifies the digests and unpickles nothing.
   `scoring`        gives MLflow the signature and an example, and answers in its server: strict JSON, and errors of a request in one line.
5. `process`        runs a model in a process of its own, `alone`, with the code that was logged with it.
"""

from pipelines.serving.model.logged_model import download_model, load_model, load_predictor, log_model
from pipelines.serving.model.predictor import REFUSED, Predictor

__all__ = ["REFUSED", "Predictor", "download_model", "load_model", "load_predictor", "log_model"]
