"""Predicts a training from plain numbers: seconds of a step, memory, hours with failures and cost, of any layout on any cluster.

1. `hardware`     reads data sheets, and clusters from a text such as `h200x8,a100x64`.
2. `model_costs`  is what a model costs, layer by layer; `transformer` computes it by formulas.
3. `layouts`      are the degrees and settings of strategies; it enumerates those that training accepts, or parses one.
4. `collectives`  has the seconds of operations between devices.
5. `stages`       are the layers of a pipeline's workers, and how long these wait.
6. `memory`       estimates a worker's memory, and `step_time` the seconds of a step; by `measured` passes, where there are some.
7. `failures`     adds checkpoints, failures and restarts.
8. `candidates`   evaluates every layout, and chooses the best of each kind. `replanning` says whether a run should change to another.
9. `simulation`   simulates steps and runs of many workers, with stragglers and failures, by discrete events.

All of them are pure functions, beside the reading of data sheets.
"""
