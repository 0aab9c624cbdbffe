"""NumPy: the first axis of the arrays of .npy and .npz files. `settings` says which; `arrays` reads a file, `columns` makes columns of an
array, for HDF5 too, and `table` reads files in Spark's tasks; `draft` is for `lockstep init`.
"""
