"""The life of versions and models after they are made.

1. `statements` are signed records of what a model or a version was made from, which others verify by making it again.
2. `diff`       says what changed between two versions, or between a version and the input of predictions.
3. `clean`      removes versions that nobody needs any more, by a policy, and checkpoints of runs that have ended.
"""
