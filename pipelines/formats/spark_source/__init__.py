"""Any data source on the class path of the user's Spark, and any table of its catalogs. `settings` names one; `table` reads it;
`frame_hash` identifies the rows of one that has no snapshots.
"""
