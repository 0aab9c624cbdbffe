"""The code of an export's `predict.py`: from raw rows to predictions, with NumPy, onnxruntime and the standard library alone.

1. `columns`    reads raw values, as JSON has them, into columns of the types that the query gave.
2. `numbers`, `categories`, `words`, `tokens` and `arrays` encode columns as the encoders of `pipelines.data.features` do. `sound` calls
                `features.spectrogram` and `series` `features.padding`, the very code of ETL.
3. `answers`    turns the network's output into readable predictions, and `boxes` that of a detector.
4. `model`      does these steps for the rows of a file, and checks itself with the examples of its folder.

`export.script` joins the files that a model needs into one. They import nothing but each other, NumPy and the standard library; only
`model` imports onnxruntime. Tests compare each encoder with that of ETL, and each export runs its script on the examples.
"""
