"""Models that take steps apart, and the step that brings them together; for strategies of replicas or of clients.

1. `replica`         is one such model with its weights and its optimizer, and the outer step, which brings all together by their mean
                     changes.
2. `outer_settings`  is that step's part of the config.
"""
