"""Tables. All facts come from a bounded sample, and are a pure function of the files.

1. `find_table` finds the files, and their format by name. `sample` reads whole lines of a text, at even distances or from its beginning,
   finds its encoding, and is what is known of a table before anything is chosen.
2. `dialect` finds separator and quotes of CSV, and `header` its titles, comments and names. `csv_table`, `json_table` and
   `parquet_table` make the table of each format, `cell_tables` that of formats whose cells have types, and `arrow_samples`
   that of those whose columns have them.
3. `column_types` finds the Spark types of texts: by the project's grammar of numbers, and by `number_formats` and `date_formats`, of
   which the query makes values. `date_columns` finds dates in numbers and in several columns, and divides all into parts.
4. `target` chooses the target. `keys_and_groups` sorts the other columns into features, keys, groups and those that are left out, by how
   rows repeat or resemble each other. `time_series` finds out whether the target depends on its past.
5. `features_and_task` gives each column its encoders, by the rules of the room `data.features`, which `auto` shares, and a text its
   terms. A `trial` of the `trial_models`, which `trial_inputs` feeds, decides on the task and its training, unless the columns do.
6. `table_draft` puts all of it together: the split, the query as `sql`, and what `data_checks` says of leaks and impossible values.
"""
