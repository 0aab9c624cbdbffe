"""Tables. All facts come from a bounded sample, and are a pure function of the files.

1. `files`      finds the files, and their format by name. `sample` reads whole lines of a file of text, at even distances or from its
                beginning, and `encoding` finds out how they are encoded.
2. `dialect`    finds separator and quotes of CSV, and `layout` its titles, comments and header; `cells` reads its values as texts, as ETL
                will; `text_types` finds their Spark types: by the project's grammar of numbers, and by `number_forms` and
                `moment_forms`, of which the query makes values.
                `column_names` finds names. `delimited_table`, `json_table`, `parquet_table` and `cell_tables`, for Excel and SQLite,
                make a `table` of each format.
3. `target`     chooses the target; `roles` sorts the other columns into features, keys, groups, and those that are left out, by what
                `groups` says of rows that repeat or resemble each other; `leaks` names what gives the target away, by `scores`.
4. The rules of the room `data.features`, which `auto` shares, give each feature its encoders, and a text its terms. `moments` finds moments
                in numbers, and divides all into parts; `series` finds out whether the target depends on its past; `table_tasks` are what
                columns alone decide; `network` chooses task, network and training by a `trial`, which gives `trial_inputs` to each of the
                `trial_models`; `expectations` names impossible values; `query` writes the SQL, and `features` lists the features.
5. `draft`      puts all of it together.
"""
