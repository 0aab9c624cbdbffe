"""Predicts the rows of files or tables with a model, with Spark.

spark-submit jobs/predict.py conf/adult.yaml --model models:/adult@champion --input FILES --output FOLDER [--keep COLUMN ...]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("predict", "jobs/predict.py")
