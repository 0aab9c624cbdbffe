"""Writes the page of a run, or a comparison of several, as one HTML file.

python jobs/report.py RUN_OR_CONF ... [--tracking.uri URI] [--out FILE]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("report", "jobs/report.py")
