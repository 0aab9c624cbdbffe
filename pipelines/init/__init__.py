"""The first config of a pipeline, from nothing but its data. Loads neither Spark nor torch nor Ray.

1. `drafting`   chooses who drafts the config of the data: the first of `DRAFTERS` that knows such data.
2. `draft`      is what each of them returns: the sections of a config, the reason of each setting, and what was assumed.
3. `yaml_text`  writes a draft as a person would: short mappings in one line, and each reason beside its setting.
4. `config_file`  checks that text as a config, and creates the file.

Folders of images are drafted by `pictures`: `contents` lists the files and says of which kind they are, `classes` gets classes and splits
from folders or names, and `folder_tables` writes the parts of a config that all files in class folders share.
"""
