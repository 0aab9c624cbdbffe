"""Strategy `local_sgd`: replicas of the model take steps of their own, and are brought together from time to time.

1. `local_sgd`      runs the replicas that a worker plays.
2. `replica`        is one of them, and `model_state` its weights.
3. `outer`          is the step that brings them together, by their mean changes: from `replica_means` or, in fewer bytes, `int8_means`.

`federated` trains its clients with the same parts.
"""
