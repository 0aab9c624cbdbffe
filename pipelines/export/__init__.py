"""Writes a trained model for other software and hardware, and compares it with the model in MLflow on the test split.

1. `subject`     is what is exported: the model of a run in MLflow, and the rows of the dataset version that it was trained on.
2. `numeric`     has the encoders that are arithmetic on numbers, as a part of the network, and the numbers that they encode.
3. `targets`     says what a target writes. `onnx`, `onnx_int8`, `stablehlo` and `hls4ml` write one each, and `executorch` says why
                 it writes nothing. `onnx_file` makes ONNX files small; `on_xla` is the script of the environment with XLA; `exporters`
                 turns what they raise into one line.
4. `parity`      compares the outputs of a written model with those of the model in MLflow, row by row.
5. `artifact`    is the folder of an export, with its manifest; it appears whole or not at all.
6. `run`         writes one target of a run's model, and logs the folder with the run.
"""
