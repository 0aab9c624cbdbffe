"""Fits a linear model on a dataset version, and logs its metrics in the same experiment.

spark-submit jobs/baseline.py conf/adult.yaml [--section.setting VALUE ...]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("baseline", "jobs/baseline.py")
