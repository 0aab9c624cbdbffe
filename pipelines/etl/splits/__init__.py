"""Splits.

1. `split_assignment` gives every row its identity, split, part and position, by hashes of its key and content, or its split by time.
2. `strata`           finds where the rows of each value are cut, if the split is stratified.
3. `fold_assignment`  gives the rows of a cross-validation their folds.
4. `shares`           compares the shares of the splits with those that were asked for.
"""
