#!/usr/bin/env bash
# Checks for Java 17 or newer, which Spark needs. Installs it if this user is root on Debian or Ubuntu; else says how to.
set -euo pipefail

java_major() { # major version of the Java that Spark would use, 0 without one
    local java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    "$java" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | grep . || echo 0
}

[ "$(java_major)" -ge 17 ] && exit

if [ -z "${JAVA_HOME:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing openjdk-17-jre-headless, which Spark needs" >&2
    export DEBIAN_FRONTEND=noninteractive
    if apt-get update -qq && apt-get install -qq --no-install-recommends openjdk-17-jre-headless >/dev/null; then
        exit
    fi
fi

cat >&2 <<MESSAGE
Spark needs Java 17 or newer, but ${JAVA_HOME:-this machine} has $(java_major | sed 's/^0$/none/').
  Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless
  Fedora           sudo dnf install java-21-openjdk-headless
  macOS            brew install openjdk@17
  conda            conda install -c conda-forge openjdk=17
or set JAVA_HOME to one that is installed.
MESSAGE
exit 1
