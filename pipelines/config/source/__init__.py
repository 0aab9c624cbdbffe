"""`source`: raw tables and the query over them.

1. `source`          is the section, and the settings of tables that Spark reads.
2. `table_settings`  is what every table has, with the core's formats by name, and checks of options and of schemas.
"""
