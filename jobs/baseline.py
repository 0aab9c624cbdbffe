"""Fits a model of Spark ML on a dataset version, and logs its metrics in the same experiment.

spark-submit jobs/baseline.py conf/adult.yaml [--model linear|forest|boosting] [--section.setting VALUE ...]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("baseline", "jobs/baseline.py")
