"""What the user's Spark knows: any data source on its class path, and any table of its catalogs. `settings` names one; `table` reads it;
`content_hash` identifies the rows of one that has no snapshots.
"""
