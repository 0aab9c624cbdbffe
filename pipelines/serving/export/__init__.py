"""Writes a trained model for other software and hardware, and compares it with the model in MLflow on the test split.

1. `subject`        is the model of a run in MLflow, with the rows of the dataset version that it was trained on, and the raw numbers of
                    encoders that are arithmetic.
2. `targets`        makes the network a program of torch.export, from which each exporter makes its own format, describes results of
                    targets, and runs the script of a target whose packages need an environment of their own. `onnx` writes two targets,
                    which encode raw numbers; the others are folders of `pipelines.exports`.
3. `parity`         compares the outputs of a written model with those of the model in MLflow, row by row.
4. `predict_script` writes the `predict.py` of an ONNX folder, with an archive of its `predict_program` and of the encoders; `examples`
                    are raw rows that it is tried on.
5. `export_folder`  writes one target of a run's model to a folder with README and manifest, which appears whole or not at all, and logs it.
"""
