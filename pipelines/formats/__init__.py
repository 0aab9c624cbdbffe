"""Formats of raw tables that few need, a folder each: settings, reader, and what `lockstep init` drafts of such files.

No other room names one: each finds the modules that it knows by name (`config.slices`). What a folder may have: `settings`, with a class
that derives from `Table`; `draft`, with `TABLE_KINDS`, `ARCHIVE_READERS` or `DRAFTERS`, which load no Spark.
"""
