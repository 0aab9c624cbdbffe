#!/usr/bin/env bash
# MLflow's UI over the runs in LOCKSTEP_HOME, reachable from this machine only.   ui.sh [PORT]
set -euo pipefail

home="${LOCKSTEP_HOME:-$PWD}"
port="${1:-5000}"
if [ ! -e "$home/mlflow.db" ]; then
    echo "$home/mlflow.db does not exist yet: \`make demo\` makes it, and LOCKSTEP_HOME names another folder" >&2
    exit 1
fi

echo "MLflow's UI: http://127.0.0.1:$port   (Ctrl-C ends it)"
cd "$home"
# Job execution serves features that are not used here, with processes that outlive the server.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false PYTHONWARNINGS=ignore
exec mlflow server --backend-store-uri "sqlite:///$home/mlflow.db" --host 127.0.0.1 --port "$port" --workers 1 --uvicorn-opts "--log-level warning"
