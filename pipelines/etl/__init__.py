"""Raw tables to a committed dataset version, with Spark. `run` names the version, `make` writes it stage by stage, and `run` commits it:

1.  The room `spark` starts a session.
2.  `query`      is checked on empty tables, with the expectations, before any data are read. That walks Spark's plans;
                 `determinism` refuses nondeterministic functions, and warns of expressions whose result may vary. `raw_schema`
                 has the types of its columns.
3.  `identity`   names the version by the identities of its raw tables and by the config.
4.  `read`       reads the tables, by the room `data.sources`, and runs the query over their views. `windows` adds columns that are
                 made of several rows; `text_casts` says where the query makes numbers of text.
5.  `judge`      gives every row its split or a reason for refusing it. `quality` decides once whether a row is refused, `splits` give
                 it its identity, split, part and position, and `auto_features` chooses encoders for `auto` by a sample of the
                 training split.
6.  `statistics` of all rows are gathered in one pass, and `fit` fits the encoders on those of the training split. `served`
                 translates the query for the served model.
7.  `write`      collects each part's rows, encodes, sorts and writes them; refused rows go to the `quarantine`.
                 Some are also kept as they are.
8.  `make`       ends with the manifest, which the commit publishes if the row counts agree; `summary` describes it, logs
                 the notes and prints the last lines.

`spark_stages` reads what Spark says about its own stages.
"""

WORKER_MODULES = ("pipelines.data.sources.text.text_table", "pipelines.etl.statistics.gather", "pipelines.etl.write")
"""What Spark's Python workers import as they start."""
