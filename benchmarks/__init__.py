"""Measures speed, beside peers, and checks that numbers have not changed. There is a folder per subject, and a command per file:

    python -m benchmarks.etl.against_by_hand --small

`etl`: our ETL against a hand-written job (`against_by_hand`), with ten times the rows (`scale`), and with many `small_files`.
`loader`: our loader against its `peers` (`against_peers`), and how well it shuffles (`shuffle_quality`).
`train`: our training against a bare DDP script and Ray Data (`against_bare`), and on `two_hosts`.
`exact`: what strategy exact costs, and whether its models are identical (`against_ddp`).
`gpu`: `training` on GPUs.
`planted`: trainings with one fault each, to try whether logs and pages lead to its cause (`run`).
`conf`: the pipelines of conf/: the `figures` that they reach, and the `digests` that a refactoring must not change.

`finetune`: what a training gains from the weights of another, on few rows.

`report` prints tables and saves them in results/; `turns` alternates programs, so that the machine's speed affects them alike.
"""
