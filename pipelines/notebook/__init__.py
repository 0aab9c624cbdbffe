"""For notebooks: frames become Parquet, functions become text, and a fitted model answers with frames.

1. `frames`         writes a pandas, Polars, Arrow or Spark frame as a Parquet file, named by the digest of its rows, and drafts the config
                    that `api.fit` trains.
2. `python_config`  has the values that a file would have, of sections and functions, and the text of a function.
3. `plain_data`     makes versions of arrays without ETL, and their config.
4. `fitted_model`   is what `api.fit` returns: the config, metrics and page of a run, and predictions for frames, which `frame_query`
                    prepares with Spark where the model takes the query's columns.
"""
