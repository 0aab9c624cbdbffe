"""ORC: Spark reads the files in place. `settings` says which; `footers` looks at them before, `table` has Spark read them, and `draft` is
for `lockstep init`.
"""
