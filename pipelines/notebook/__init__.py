"""For notebooks: frames become Parquet, and a fitted model answers with frames.

1. `frames`        writes a pandas, Polars, Arrow or Spark frame as a Parquet file, named by the digest of its rows.
2. `fitted_model`  is what `api.fit` returns: the config, metrics and page of a run, and predictions for frames.
"""
