"""Raw tables to a committed dataset version, with Spark. `run` names and commits what `make` makes, stage by stage:

1.  `session`    starts Spark, with the settings that content depends on.
2.  `analysis`   says what is wrong with `query` and expectations, on empty tables: no byte is read. It walks Spark's
                 `plans`, in which `determinism` refuses chance, and warns of what may differ the next time.
3.  `identity`   names the version by the identities of its raw tables, and by the config. What tables are, and how each is
                 read once, is the room `sources`.
4.  `query`      runs over the tables' views. What a served model will make of raw rows is `served`, if `served_check`
                 finds it to be what the query makes, of rows of the source and of extreme ones, `served_check_rows`.
5.  `quality`    decides about every row of the query, once: it is kept, or has the reason why not.
6.  `placement`  gives every row its identity, split, part and place, by hashes of its key and content.
7.  `fit`        fits the encoders on the training split, and counts all rows.
8.  `write`      brings each part's rows together, encodes, sorts (`sort`) and writes them, or sets them aside in the
                 `quarantine`; `attempt` is what that leaves.
9.  `describe`   says it in a manifest, which the commit publishes if rows balance; `summary` are the last lines.

`executors` refuses machines with other versions; `driver` words errors of Spark's Java driver; `leave` is what a signal does,
`private` what a session hides from others; `progress` shows how far it is.
"""
