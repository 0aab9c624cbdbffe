"""Trains a model on a dataset version, and logs it in MLflow.

python jobs/train.py conf/adult.yaml [--section.setting VALUE ...]
ray job submit --working-dir . -- python jobs/train.py conf/adult.yaml
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("train", "jobs/train.py")
