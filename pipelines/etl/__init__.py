"""Raw tables to a committed dataset version, with Spark. `run` names and commits what `make` makes, stage by stage:

1.  `session`    starts Spark, with the settings that content depends on; `data_sources` teaches it `idx`, packages and
                 archives (`archive`).
2.  `analysis`   says what is wrong with `query` and expectations, on empty tables: no byte is read. It walks Spark's
                 `plans`, in which `determinism` refuses chance, and warns of what may differ the next time.
3.  `checksums`  name the version by the bytes of its sources, which `files` finds and `content` opens. A table of whole
                 files is read for that only once: `pack` keeps it.
4.  `sources`    makes every table a view. Text is cut by `records` (and `documents`), judged by `soundness`, and parsed by
                 `parse`, once; what is malformed is kept apart. Parquet lies where it is, after a look at its `footers`.
                 What a served model will make of raw rows is `served`, if `proof` finds it to be what the query makes, of rows of
                 the source and of `hostile` ones.
5.  `quality`    decides about every row of the query, once: it is kept, or has the reason why not.
6.  `order`      gives every row its identity, split, part and place, by hashes of its key and content.
7.  `fit`        fits the encoders on the training split, and counts all rows.
8.  `write`      brings each part's rows together, encodes, sorts (`sort`) and writes them, or sets them aside in the
                 `quarantine`; `attempt` is what that leaves.
9.  `describe`   says it in a manifest, which the commit publishes if rows balance; `summary` are the last lines.

`distribute` runs Python on the executors, of which `executors` refuses those with other versions; `faults` words Spark's
errors, `driver` those of its Java driver; `leave` is what a signal does, `private` what a session hides from others;
`progress` shows how far it is.
"""
