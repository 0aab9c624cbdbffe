"""The model that MLflow holds: raw rows in, predictions out, through the very encoders that ETL fitted and applied.

1. `predictor`   encodes raw rows, runs the model on those that the encoders accept, and says why it refused the others.
2. `model`       files config, manifest, weights and code as a run's model, and hands MLflow's data frames to a predictor.
3. `signature`   tells MLflow which columns it takes and gives, with an example.
4. `entry`       the few lines that MLflow keeps as the model's code and runs: nothing is unpickled.
"""

from pipelines.serve.model import RawRows, log_model
from pipelines.serve.predictor import REFUSED, Predictor

__all__ = ["REFUSED", "Predictor", "RawRows", "log_model"]
