"""Simulates training steps and whole runs on many workers. Every simulation is a pure function of plain numbers and a seed.

1. `random_numbers`      draws all that is random, by (seed, purpose, index).
2. `links`               has links and networks, and how long collectives take on them.
3. `stragglers`          are workers that are slower than others, always or in some steps.
4. `workload`            is what a worker computes and sends in a step, and the cluster that does it.
5. `outcome`             is what simulations return: seconds by cause, and efficiency.
6. Each strategy is a frozen dataclass that simulates itself: those of `data_parallel` (`ddp`, `exact`), `model_parallel` and `pipeline`
   (`sharded`), `rounds` (`local_sgd`, `federated`), `parameter_servers` and `trees` (`boosting`).
7. `scaling`             repeats a simulation with more and more workers.
8. `training_run`        is a run of days, with checkpoints, failures and resizes; it takes a step's seconds from the others.
"""
