"""Ensembles: a model that averages those of finished runs, chosen on the validation split.

1. `settings`  has the task `ensemble` with the runs of its members, and the strategy `ensemble_selection`.
2. `members`   reads the runs in the driver: it refuses those that do not fit, and gives the workers their weights.
3. `task`      builds the members' networks from their recorded settings.
   `network`   is the module that holds them and averages their outputs.
4. `strategy`  computes the members' outputs for the rows of validation once, on all workers, and chooses.
   `selection` says how often each member is chosen, from how good any of their averages is.
"""
