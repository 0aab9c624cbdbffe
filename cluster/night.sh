#!/usr/bin/env bash
# A night of conf/NAME.yaml: night.sh NAME [--section.setting VALUE ...]. docs/how-to/unattended.md says what each exit code means.
set -euo pipefail
name=$1 conf=conf/$1.yaml log=$1.log
# A second night leaves at once. The jobs do not inherit the lock: what of them outlives a killed night must not keep the next one out.
[ "${NIGHT_LOCKED:-}" ] || NIGHT_LOCKED=1 exec flock --nonblock --close --conflict-exit-code 0 "$name.lock" "$0" "$@"
shift
exec >> "$log"  # lines of JSON; errors go to standard error
python jobs/etl.py "$conf" --from previous --json "$@"
run=$(python jobs/train.py "$conf" --once --json "$@" | tee --append "$log" | sed -n 's/.*"event": "result".*"run_id": "\([^"]*\)".*/\1/p')
python jobs/promote.py "$conf" --run "$run" --json "$@" || [ $? = 8 ]  # 8: refused, and the champion stays
python jobs/predict.py "$conf" --model "models:/$name@champion" --output "data/predictions/$name" --json "$@"
