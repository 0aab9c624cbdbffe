#!/usr/bin/env bash
# MLflow's server keeps its runs in PostgreSQL: says how to get it, or gets it where this user may install packages.
set -euo pipefail

have_postgres() {
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

have_postgres && exit

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing postgresql, in which MLflow keeps its runs" >&2
    export DEBIAN_FRONTEND=noninteractive
    if apt-get update -qq && apt-get install -qq --no-install-recommends postgresql >/dev/null && have_postgres; then
        exit
    fi
fi

cat >&2 <<MESSAGE
MLflow's server needs PostgreSQL, and this machine has none.
  Debian, Ubuntu   sudo apt-get install postgresql
  Fedora           sudo dnf install postgresql-server
  conda            conda install -c conda-forge postgresql
MESSAGE
exit 1
