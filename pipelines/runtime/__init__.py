"""Services of every process: signals, files, progress, random words, weights and versions.

1. `interrupts`  handles SIGINT and SIGTERM, from a job's first line to its last; `output` a reader of standard output that leaves,
                 and what Spark's Java prints on every start.
2. `atomic`      writes files that appear whole or not at all.
3. `progress`    shows a progress bar on a terminal or in a notebook, and lines elsewhere. `notebook_html` is what a notebook shows of a
                 result.
4. `philox`      generates random words, the same in every version of NumPy.
5. `weights`     converts a model's weights to bytes, and computes their digest.
6. `environment` compares installed versions between machines, sets variables for a while, and says whether Spark runs on this machine
                 alone.
7. `templates`   loads the Jinja templates of a package, which escape all that they print.
8. `imports`     imports large libraries in less time, or while something else starts.
9. `machine`     has the rules about Java, memory, ports and GPUs, and `disks` those about disks, for errors and for `lockstep doctor`.
10. `slower_ways` keeps what a process computes in a slower way than it could, and why, for the page of a run.

`compat` is a room of its own: private names of libraries, each with a test that fails when it changes.
"""
