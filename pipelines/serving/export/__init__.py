"""Writes a trained model for other software and hardware, and compares it with the model in MLflow on the test split.

1. `subject`     is the model of a run in MLflow, with the rows of the dataset version that it was trained on.
2. `numeric`     has the encoders that are arithmetic on numbers, as a part of the network, and the numbers that they encode.
3. `exporters`   makes the network a program of torch.export, from which each exporter makes its own format, and turns their errors into
                 one line.
4. `targets`     describes the result of a target. `onnx`, `onnx_int8`, `stablehlo`, `executorch` and `hls4ml` write one each.
5. `environment` runs the script of a target whose packages need an environment of their own: `on_xla` or `on_executorch`.
6. `parity`      compares the outputs of a written model with those of the model in MLflow, row by row.
7. `script`      writes the `predict.py` of an ONNX folder, with an archive of its `program` and of the encoders, whose modules `modules`
                 finds. `json_rows` reads raw rows, `examples` are those that it is tried on, and `example_check` compares predictions.
8. `artifact`    is the folder of an export, with its README and its manifest; it appears whole or not at all.
9. `run`         writes one target of a run's model, and logs the folder with the run.
"""
