"""The model that MLflow holds: raw rows in, predictions out, through the very encoders that ETL fitted and applied.

1. `predictor`   encodes raw rows, runs the model on those that the encoders accept, and says why it refused the others.
2. `signature`   tells MLflow which columns it takes and gives, with an example.
3. `model`       files config, manifest, weights and code as a run's model, with a digest of every file; and loads it.
4. `entry`       what MLflow keeps as the model's code and runs: it compares the digests, and unpickles nothing.
"""

from pipelines.serve.model import load_model, load_predictor, log_model
from pipelines.serve.predictor import REFUSED, Predictor

__all__ = ["REFUSED", "Predictor", "load_model", "load_predictor", "log_model"]
