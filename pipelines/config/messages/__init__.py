"""Errors of a config that is refused, in words.

1. `wording`       turns validation errors into one line each.
2. `did_you_mean`  suggests the known name closest to an unknown one.
3. `renamed_keys`  knows yesterday's keys.
"""
