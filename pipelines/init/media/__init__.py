"""Data that are no table. `contents` lists them, and says of which kind their files are.

1. `pictures` and `recordings`: files in class folders, in one folder or one archive, which `file_table` samples. `classes` gets classes and
   splits from folders or names, and `folder_tables` writes the parts of a config that all files with classes share.
2. `masks`, `voc` and `coco`: images with masks of equal names, and images with boxes in XML files or in a JSON file. `annotated` writes the
   parts of a config that they share, and `objects` those of boxes. `volumes` are NIfTI files with labels, whose folders `volume_folders`
   chooses, and whose shape and spacing `volume_grids` does. `mask_pairs` and `mask_values` are for masks of images and volumes alike.
3. `idx_images`: the files of MNIST and its kin.
4. `sentences`, `documents` and `language`: lines with a label, texts in class folders, and texts without classes. `text_files` reads their
   beginnings, and finds encodings and the files of each split; `texts` chooses the features of texts with classes.
"""
