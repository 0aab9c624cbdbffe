"""Faults that are really caused, to real processes, at random moments; and what came of them, counted.

1. `settings`, `task`   a model whose workers write down which rows they train on, and when.
2. `trajectory`         what of that survived: rows lost, rows repeated, losses, seconds from a fault to the next step.
3. `processes`          Ray's nodes, the tracking server and the jobs, as processes that can be killed.
4. `training`           a training under a series of faults, beside one that was left alone.
5. `signals`            SIGINT and SIGTERM to a training with a Ray of its own, in every way in which they are sent.
6. `stages`             the same to training and ETL, in each of their stages.
7. `etl`                faults to ETL: one to a job, then the same command again.
8. `fuzz`               a committed version, altered in thousands of ways.
9. `servers`            parameter servers, their backups and workers.
10. `layouts`           a model that is spread over workers, which goes on in another layout after every kill: `life` is one.
11. `nights`            a pipeline that nobody watches, night after night, on `nightly_data`, beside one ETL of everything.
12. `report`            the table, and the dated result.

`make chaos` runs all of it; the tests here are its short form.
"""
