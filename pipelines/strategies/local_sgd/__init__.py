"""Strategy `local_sgd`: replicas of the model take steps of their own, and are brought together from time to time.

1. `settings`    is the section of the config.
2. `local_sgd`   runs the replicas that a worker plays, and brings them together by their mean changes: all bits of them, or int8.
"""
