"""Writes the model of a run for other software and hardware, and compares it with the model in MLflow on every test row.

python jobs/export.py conf/digits.yaml --run RUN_ID --to onnx|onnx-int8|stablehlo|executorch|hls4ml [--section.setting VALUE ...]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("export", "jobs/export.py")
