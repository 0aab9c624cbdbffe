"""Makes a dataset version from raw tables.

spark-submit jobs/etl.py conf/adult.yaml [--section.setting VALUE ...]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("etl", "jobs/etl.py")
