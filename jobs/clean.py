"""Removes versions of a dataset that nobody needs any more, and checkpoints of trainings that have ended. Without --yes it only says so.

python jobs/clean.py conf/adult.yaml [--yes] [--json] [--section.setting VALUE ...]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("clean", "jobs/clean.py")
