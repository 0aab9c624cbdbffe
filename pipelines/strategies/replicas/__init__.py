"""Models that take steps apart, and the step that brings them together; for strategies of replicas or of clients.

1. `outer` has one such model with its optimizer, its weights, and the step that brings all together, by their mean changes from
   `replica_means`; `outer_settings` is its part of the config.
"""
