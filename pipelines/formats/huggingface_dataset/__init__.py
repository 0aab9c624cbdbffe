"""Datasets of Hugging Face on disk, as `save_to_disk` writes them. `settings` says which; `folders` finds the files of a dataset, `shards`
reads one, and `table` does in Spark's tasks; `draft` is for `lockstep init`.
"""
