"""The life of versions and models after they are made. Rooms:

1. `diff`      says what changed between two versions, or between a version and the input of predictions.
"""
