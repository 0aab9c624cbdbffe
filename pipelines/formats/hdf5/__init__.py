"""HDF5: datasets of equal length in a group. `settings` names it; `datasets` reads a file with h5py, and `table` does in Spark's tasks;
`draft` is for `lockstep init`.
"""
