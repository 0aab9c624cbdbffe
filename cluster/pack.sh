#!/usr/bin/env bash
# Packs a Python environment that is sent with a Spark job, for executors on machines without one.   pack.sh [FILE.tar.gz [PACKAGE …]]
#
#   cluster/pack.sh environment.tar.gz
#   mkdir environment && tar -xf environment.tar.gz -C environment
#   PYSPARK_DRIVER_PYTHON=python PYSPARK_PYTHON=./environment/bin/python \
#     spark-submit --archives 'environment.tar.gz#environment' jobs/etl.py conf/adult.yaml
#
# It contains what executors import, in the versions of constraints.txt, and this package. Its Python is a link to the one
# that runs this script (PYTHON=python3.12 names another): every machine needs that interpreter, at the same path.
set -euo pipefail

root="$(cd "$(dirname "$0")/.." && pwd)"
output="$(realpath -m "${1:-environment.tar.gz}")"
packages=(bracex numpy pandas psutil pyarrow threadpoolctl pydantic PyYAML Pillow tokenizers wcmatch xxhash "${@:2}")
python="${PYTHON:-python3}"

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"$python" -m venv --symlinks "$folder/environment"
"$folder/environment/bin/python" -m pip install -qq --constraint "$root/constraints.txt" "${packages[@]}"
# From a copy, since a build leaves files beside the sources.
mkdir "$folder/source"
cp -R "$root"/{setup.cfg,pyproject.toml,README.md,LICENSE,pipelines} "$folder/source"
"$folder/environment/bin/python" -m pip install -qq --no-deps "$folder/source"
# A venv's Python finds its packages beside itself, wherever it stands. Scripts contain the path at which they were installed.
find "$folder/environment/bin" -type f -delete
tar -czf "$output" -C "$folder/environment" .
echo "$output: $(du -h "$output" | cut -f1)"
