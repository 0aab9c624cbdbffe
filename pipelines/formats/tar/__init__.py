"""Tar archives, a row for each file in one. `settings` name the format, `table` reads an archive in order, and `draft` is for
`lockstep init`.
"""
