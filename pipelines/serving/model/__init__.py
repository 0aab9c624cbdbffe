"""The served model in MLflow: it predicts from raw rows, with the encoders that ETL fitted.

1. `columns`     converts the columns of rows to those that the model takes, by one rule for all ways in.
2. `predictor`   encodes raw rows, runs the model on the rows that the encoders accept, and gives a reason for each other row.
   `series`      makes the columns of `source.windows` from the last rows of series.
3. `signature`   describes the columns of input and output for MLflow, with an example.
4. `model`       logs config, manifest, weights and code as the model of a run, with a digest of every file, and loads such models.
   `archive`     makes one file of the code.
5. `entry`       is the code that MLflow stores with the model and runs to load it; it verifies the digests and unpickles nothing.
   `scoring`     answers for it in MLflow's server: strict JSON, and errors of a request in one line.
6. `process`     runs a model in a process of its own, `alone`, with the code that was logged with it.
"""

from pipelines.serving.model.logged_model import download_model, load_model, load_predictor, log_model
from pipelines.serving.model.predictor import REFUSED, Predictor

__all__ = ["REFUSED", "Predictor", "download_model", "load_model", "load_predictor", "log_model"]
