#!/usr/bin/env bash
# Checks for PostgreSQL, in which MLflow's server keeps runs. Installs it if this user is root on Debian or Ubuntu; else says how to.
set -euo pipefail

have_postgres() {
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

have_postgres && exit

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing postgresql, in which MLflow's server keeps runs" >&2
    export DEBIAN_FRONTEND=noninteractive
    if apt-get update -qq && apt-get install -qq --no-install-recommends postgresql >/dev/null && have_postgres; then
        exit
    fi
fi

cat >&2 <<MESSAGE
MLflow's server needs PostgreSQL, but this machine has none.
  Debian, Ubuntu   sudo apt-get install postgresql
  Fedora           sudo dnf install postgresql-server
  conda            conda install -c conda-forge postgresql
MESSAGE
exit 1
