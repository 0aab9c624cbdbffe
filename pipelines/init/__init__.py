"""The first config of a pipeline, from nothing but its data. Loads neither Spark nor torch nor Ray.

1. `drafting`   chooses who drafts the config of the data: the first of `DRAFTERS` that knows such data.
2. `draft`      is what each of them returns: the sections of a config, the reason of each setting, and what was assumed.
3. `yaml_text`  writes a draft as a person would: short mappings in one line, and each reason beside its setting.
4. `config_file`  checks that text as a config, and creates the file.

Data that are no table are listed by `contents`, which says of which kind their files are, and drafted by one of these:

- `pictures` and `recordings`: files in class folders, in one folder or one archive, which `file_table` samples. `classes` gets classes and
  splits from folders or names, and `folder_tables` writes the parts of a config that all files with classes share.
- `idx_images`: the files of MNIST and its kin.
- `sentences`, `documents` and `language`: lines with a label, texts in class folders, and texts without classes. `text_files` reads their
  beginnings, and finds encodings and the files of each split; `texts` chooses the features of texts with classes.

Of tables, all facts come from a bounded sample, and are a pure function of the files:

1. `table_files`  finds the files, and their format by name. `sample` reads pieces of a file of text at even distances.
2. `dialect`    finds encoding, separator, quotes and header of CSV; `cells` reads its values as texts, as ETL will; `text_types` finds
                their Spark types by the project's grammar of numbers, and `column_names` names for them. `delimited_table`, `json_table`,
                `parquet_table` and `cell_tables`, for Excel and SQLite, make a `table` of each format.
3. `target`     chooses the target; `roles` sorts the other columns into features, keys, groups, and those that are left out.
4. The rules of the room `data.features`, which `auto` shares, give each feature its encoders. `moments` divides dates into parts;
                `ratings` knows users and items; `network` chooses task, network and training; `expectations` names impossible values;
                `query` writes the SQL, and `table_features` lists the features.
5. `table_draft`  puts all of it together.
"""
