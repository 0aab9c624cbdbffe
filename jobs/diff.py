"""Says what changed between two dataset versions, or between a version and rows to predict.

python jobs/diff.py A [B] [--json] [--output FILE]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("diff", "jobs/diff.py")
