"""Strategies beyond `ddp` and `exact`, a folder each: how workers share the computation of a step.

A folder with a module `settings` is a kind of `train.strategy`; nothing else names it.

1. `local_sgd`         has replicas take steps of their own, and brings them together from time to time.
2. `federated`         trains on clients' rows, in rounds, with differential privacy.
3. `parameter_server`  keeps parameters on servers, so that workers need not wait for each other.
4. `sharded`           spreads one model over workers.

The first two share `replica`, a model that takes steps apart, and `outer_step`, the settings of the step that brings all together.
"""
