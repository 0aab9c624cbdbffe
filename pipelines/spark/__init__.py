"""Sessions of Spark, for every job: one that makes a dataset, and one that makes predictions.

1. `session`           is the session, with every option that content depends on, and those that follow the number of columns. `context`
                       starts Spark for it, private to its user, or it has been started by `early_start` while the job's other modules were
                       imported.
2. `java_options`      lets Java start in half of the time, and spare what only long jobs need.
3. `ambient_settings`  fixes what surrounds a session and could change values: locale, time zone, encoding, settings of the user's. It
                       refuses machines with other versions than the driver's.
4. `job_endings`       cancels a session's jobs when a signal arrives, and explains failures of Spark's Java driver.
5. `stages`            shows the progress of stages, and what Spark says of its own. `plans` walks Spark's logical plans.
"""
