"""Waits until an MLflow server answers, and prints the address of the experiment with the newest run.

    python cluster/local/ui_page.py http://127.0.0.1:5000 PROCESS      the server's process id

It is the page of the table of runs: by itself, MLflow opens an experiment in its view for traces of language models.
"""

import json
import os
import sys
import time
import urllib.request
from typing import Any

ANSWER_SECONDS = 120.0


def main(server: str, process: int) -> None:
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            print(newest_page(server))
            return
        except OSError:  # also what urllib raises while nothing listens
            if not _runs(process):
                sys.exit("MLflow's server has ended before it answered; its messages are above")
            if time.monotonic() > deadline:
                sys.exit(f"MLflow's server has not answered at {server} for {ANSWER_SECONDS:.0f} s; its messages are above")
            time.sleep(0.2)


def newest_page(server: str) -> str:
    """The page of the experiment whose run began last, or of the default one. Raises OSError if the server does not answer."""
    experiments = ask(server, "experiments/search", max_results=1_000).get("experiments", [])
    ids = [experiment["experiment_id"] for experiment in experiments]
    runs = ask(server, "runs/search", experiment_ids=ids, order_by=["attributes.start_time DESC"], max_results=1).get("runs", [])
    newest = runs[0]["info"]["experiment_id"] if runs else "0"
    return f"{server}/#/experiments/{newest}?workflowType=machine_learning"


def ask(server: str, path: str, **body: Any) -> dict[str, Any]:
    request = urllib.request.Request(f"{server}/api/2.0/mlflow/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return dict(json.loads(response.read()))


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
