"""Messages in words, first of all the errors of a config that is refused.

1. `wording`       turns validation errors into one line each.
2. `did_you_mean`  suggests the known name closest to an unknown one.
3. `counting`      counts things, and shows few of many names.
"""
