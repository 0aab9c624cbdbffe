"""Models that take steps apart, and the step that brings them together; for strategies of replicas or of clients.

1. `replica`  is one such model with its weights and its optimizer.
2. `outer`    is the step that brings all together, by their mean changes from `replica_means`; `outer_settings` is its part of the
              config.
"""
