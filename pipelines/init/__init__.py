"""The first config of a pipeline, from nothing but its data. Loads neither Spark nor torch nor Ray.

1. `drafting`  chooses who drafts the config of the data: the first that knows such data, of the core or of an application.
2. `tables`    drafts those of tables, and `media` those of pictures, recordings and texts.
3. `search_section` adds which settings a search varies, by the kind of the task.
4. `draft`     is what each of them returns: the sections of a config, the reason of each setting, and what was assumed. Its text is as a
               person would write it: short mappings in one line, and each reason beside its setting. Checked, it becomes a file.
"""
