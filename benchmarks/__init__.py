"""How fast it is, beside its peers, and whether numbers are still what they were. A folder per subject, a command per file:

    python -m benchmarks.etl.against_by_hand --small

`etl`: our ETL against a job by hand (`against_by_hand`), ten times the rows (`scale`), many `small_files`.
`loader`: our loader against its `peers` (`against_peers`), and how well it shuffles (`shuffle_quality`).
`train`: our training against a bare DDP script and Ray's own way (`against_bare`), and on `two_hosts`.
`exact`: what strategy exact costs, and that its models are the same (`against_ddp`).
`gpu`: `training` on GPUs.
`conf`: the pipelines of conf/: the `figures` that they reach, and the `digests` that a change must leave as they are.

`report` prints tables and keeps them in results/; `turns` lets programs take turns, so that a ratio is of one machine's one hour.
"""
