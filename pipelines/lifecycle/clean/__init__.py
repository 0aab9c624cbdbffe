"""Removes what nobody needs any more of a dataset and its trainings: old versions, checkpoints of trainings that have ended, files of
attempts that died.

1. `stored_versions` reads what lies in a dataset's folder: versions, the parts of other versions that they refer to, and old attempts.
2. `policy`          says of each version why it stays, as far as `dataset.keep`, models, runs, statements and other versions decide.
3. `removal`         removes versions so that none is ever half there, and goes on with what an interrupted removal left behind.
4. `cleaning`        puts these together, and `terminal_text` has its lines.
"""
