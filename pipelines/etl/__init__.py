"""Raw tables to a committed dataset version, with Spark. `run` names the version, `make` writes it stage by stage, and `run` commits it:

1.  The room `spark` starts a session.
2.  `query`      is checked on empty tables, with the expectations, before any data are read. That walks Spark's plans;
                 `determinism` refuses nondeterministic functions, and warns of expressions whose result may vary. `raw_schema`
                 has the types of its columns.
3.  `identity`   names the version by the identities of its raw tables and by the config. The room `data.sources` reads tables.
4.  `query`      runs over the tables' views, and `windows` adds columns that are made of several rows; `text_casts` says
                 where it makes numbers of text. `served` translates it for the served model.
5.  `quality`    decides once whether a row of the query is refused, and for which reason.
6.  `splits`     give every row its identity, split, part and position.
7.  `auto_features` names the columns of patterns, and chooses encoders for `auto` by a sample of the training split.
8.  `statistics` of all rows are gathered in one pass, and `fit` fits the encoders on those of the training split.
9.  `write`      collects each part's rows, encodes, sorts (`sort`) and writes them; refused rows go to the `quarantine`.
                 Some are also kept as they are.
10. `make`       ends with the manifest, which the commit publishes if the row counts agree; `summary` prints the last lines.

`spark_stages` reads what Spark says about its own stages.
"""
