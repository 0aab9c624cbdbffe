"""Data that are no table. `contents` lists them, and says of which kind their files are.

1. `pictures`: files in class folders, in one folder or one archive, which `file_table` samples. `classes` gets classes and splits from
   folders or names, and `folder_tables` writes the parts of a config that all files with classes share.
2. `annotated` writes the parts of a config that images with masks and images with boxes share.
3. `idx_images`: the files of MNIST and its kin.
4. `sentences` and `documents`: lines with a label, and texts in class folders. `text_files` reads their beginnings, and finds encodings
   and the files of each split; `texts` chooses the features of texts with classes.
"""
