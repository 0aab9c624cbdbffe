"""A dataset version to what a linear model reaches on it, in the same experiment.

spark-submit jobs/baseline.py conf/adult.yaml [--section.setting VALUE ...]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("baseline", "jobs/baseline.py")
