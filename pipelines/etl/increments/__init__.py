"""Makes a version of the rows of a parent version and of those that came to the tables since: only these are read, encoded and written.

1. `plan`         opens the parent that the flag `--from` names, and asks each table for its new rows. `query_growth` finds out whether new
                  rows of the query follow from them alone. Encoders keep the parent's state.
2. `known_keys`   keeps keys unique: it refuses new rows, or finds the rows of the parent that they replace.
3. `inherit`      writes the parts of such rows again without them, and many small parts as one; then it puts the parent's row groups
                  before the new ones.

What no increment can do is done in full; NoIncrementError says why.
"""
