"""Messages in words, first of all the errors of a config that is refused.

1. `validation_errors` turns them into one line each.
2. `words`             counts things, shows few of many names, and suggests the known name that is closest to an unknown one.
"""
