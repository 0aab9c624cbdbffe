"""Raw tables to a committed dataset version, with Spark. `run` does it all, stage by stage:

1.  `session`    starts Spark, with the settings that content depends on; `data_sources` teaches it `idx`, packages and
                 archives (`archive`).
2.  `checksums`  name the version by the bytes of its sources, which `files` finds and `content` opens.
3.  `sources`    makes every table a view. Text is cut by `records` (and `documents`), judged by `soundness`, and parsed by
                 `parse`, once; what is malformed is kept apart. Parquet lies where it is, after a look at its `footers`.
4.  `query`      runs the config's SQL over the views, and warns of what may differ the next time.
5.  `quality`    refuses rows that are not as expected, and the version if they are too many.
6.  `order`      gives every row its identity, split, part and place, by hashes of its key and content.
7.  `fit`        fits the encoders on the training split.
8.  `write`      brings each part's rows together, encodes, sorts (`sort`) and writes them; `attempt` is what that leaves.
9.  `describe`   says it in a manifest, which the commit publishes.

`distribute` runs Python on the executors, of which `executors` refuses those with other versions; `faults` words Spark's
errors, `progress` shows how far it is.
"""
