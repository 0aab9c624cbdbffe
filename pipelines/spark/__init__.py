"""Sessions of Spark, for every job: one that makes a dataset, and one that makes predictions.

1. `session`            is the session, with every option that content depends on. `context` starts Spark for it, or has been started
                        by `early_start` while the job's other modules were imported.
2. `java_options`       lets Java start in half of the time, and spare what only long jobs need.
3. `ambient_settings`   fixes what surrounds a session and could change values: locale, time zone, encoding, settings of the user's.
4. `security`           keeps a session's sockets, pages and files private.
5. `cancellation`       cancels a session's jobs when a signal arrives.
6. `executor_versions`  refuses machines with other versions than the driver's.
7. `driver`             explains failures of Spark's Java driver.
8. `progress`           shows the progress of stages.
9. `wide_tables`        sets what follows the number of columns; it walks Spark's `plans`.
"""
