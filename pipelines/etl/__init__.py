"""Raw tables to a committed dataset version, with Spark. `run` names the version, `make` writes it stage by stage, and `run` commits it:

1.  The room `spark` starts a session.
2.  `query`      is checked on empty tables, with the expectations, before any data are read. That walks Spark's plans: `plan_checks`
                 refuses nondeterministic functions, and warns of expressions whose result may vary.
3.  `identity`   names the version by the identities of its raw tables and by the config. With `--from`, `increments` find the rows that
                 came since a parent was made; only these take the next steps.
4.  `make`       reads the tables, by the room `data.sources`, and runs the query over their views. `windows` adds columns that are
                 made of several rows.
5.  `judge`      gives every row its split or a reason for refusing it. `refusals` decides once whether a row is refused, `splits` give
                 it its identity, split, part and position, and `auto_features` chooses encoders for `auto` by a sample of the
                 training split.
6.  `statistics` of all rows are gathered in one pass, and `judge` fits the encoders on those of the training split. `served_query`
                 translates the query for the served model.
7.  `write`      collects each part's rows, encodes, sorts and writes them; refused rows go to the `quarantine`.
                 Some are also kept as they are.
8.  `make`       ends with the manifest, which the commit publishes if the row counts agree; `summary` describes it, logs
                 the notes and prints the last lines.
"""

WORKER_MODULES = ("pipelines.data.sources.text.text_table", "pipelines.etl.statistics.gather", "pipelines.etl.write")
"""What Spark's Python workers import as they start."""
