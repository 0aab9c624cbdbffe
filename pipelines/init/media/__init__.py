"""Data that are no table. `folder_contents` lists them, says of which kind their files are, and samples them.

1. `class_folders` gets classes and splits from folders or names, and writes the parts of a config that all files with classes share.
2. `images`: images in class folders, and what images with masks and images with boxes share.
3. `labelled_texts`: texts in class folders, and lines with a label. `text_files` reads their beginnings, and finds encodings and the files
   of each split.
"""
