#!/usr/bin/env bash
# Serves MLflow's UI for the runs in LOCKSTEP_HOME, reachable from this machine only, and opens it.   ui.sh [PORT]
set -euo pipefail

home="${LOCKSTEP_HOME:-$PWD}"
[[ "$home" = /* ]] || home="$PWD/$home" # since the server runs in it
port="${1:-5000}"
folder="$(cd "$(dirname "$0")" && pwd)"
if [ ! -e "$home/mlflow.db" ]; then
    echo "$home/mlflow.db does not exist yet; run \`make demo\`, or set LOCKSTEP_HOME to another folder" >&2
    exit 1
fi
if ! [[ "$port" =~ ^[0-9]+$ ]] || ((10#$port < 1 || 10#$port > 65535)); then
    echo "PORT is $port; it must be a number from 1 to 65535: make ui PORT=5001" >&2
    exit 2
fi
if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    echo "port $port is in use, maybe by an earlier \`make ui\`; use another one: make ui PORT=$((10#$port % 65535 + 1))" >&2
    exit 1
fi

cd "$home"
# Job execution is for features that are not used here, and starts processes that outlive the server.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false PYTHONWARNINGS=ignore
mlflow server --backend-store-uri "sqlite:///$home/mlflow.db" --host 127.0.0.1 --port "$port" --workers 1 \
    --uvicorn-opts "--log-level warning" &
server=$!
trap 'kill -TERM "$server" 2>/dev/null; wait "$server"; exit 0' INT TERM

if ! address=$(python "$folder/ui_page.py" "http://127.0.0.1:$port" "$server"); then
    kill -TERM "$server" 2>/dev/null || true
    exit 1
fi
echo "MLflow's UI: $address   (Ctrl-C ends it)"
if [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ] && command -v xdg-open >/dev/null; then
    xdg-open "$address" >/dev/null 2>&1 || true
fi
wait "$server"
