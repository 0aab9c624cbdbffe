"""Writes the page of a run, or a comparison of several, as one HTML file.

python jobs/report.py [CONF.yaml ...] [RUN_ID ...] [--tracking.uri URI] [--output FILE]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("report", "jobs/report.py")
