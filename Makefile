# Every target installs what it needs into .venv, once: setup.cfg gives the ranges, constraints.txt the versions.
PYTHON ?= python3
VENV ?= .venv
PORT ?= 5000
ARGS ?=
BENCHMARKS ?= etl.against_by_hand loader.against_peers loader.shuffle_quality train.against_bare exact.against_ddp
ONLY ?=

installed := $(VENV)/installed
server := $(VENV)/installed-server
export PATH := $(abspath $(VENV))/bin:$(PATH)
export LOCKSTEP_HOME ?= $(CURDIR)

.PHONY: help demo test test-quick test-cluster docs chaos ui lint bench figures clean java cluster-up cluster-status cluster-down

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "Variables: PYTHON=python3.12, PORT=5000 of the UI, LOCKSTEP_HOME=folder of data, runs and mlflow.db"

demo: java $(installed) ## raw data to a tracked model: digits, through Spark, Ray Train and MLflow
	@python cluster/local/demo.py $(ARGS)

test: java $(installed) ## all tests, quick ones first, in two processes; ARGS="-n 0 tests/unit -k order" for some in one
	@python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-quick: $(installed) ## in two minutes: no Spark, no Ray, no groups of workers
	@python -m pytest -m "not slow" tests/unit $(ARGS)

docs: $(installed) ## write docs/config.md anew, from the settings
	@python -m pipelines.config.reference > docs/config.md.new && mv docs/config.md.new docs/config.md

chaos: java $(installed) ## faults to real processes at random moments, and what came of them; ARGS="--cases etl fuzz" for some
	@PYTHONPATH=.:tests:cluster/local python -m chaos $(ARGS)

ui: $(installed) ## browse the runs in MLflow's UI
	@cluster/local/ui.sh $(PORT)

cluster-up: java $(server) ## Spark, Ray and MLflow on PostgreSQL as servers of this machine that stay; again for what has died
	@cluster/local/postgres.sh
	@python cluster/local/control.py up

cluster-status: $(server) ## which of them answer, and where
	@python cluster/local/control.py status

cluster-down: $(server) ## stop jobs, then the servers; data and logs stay
	@python cluster/local/control.py down

test-cluster: java $(server) ## what a user does on such a cluster, on one host, on five, and on Slurm: half an hour
	@cluster/local/postgres.sh
	@python -m pytest $(or $(ARGS),tests/cluster)

lint: $(installed) ## ruff and mypy
	@ruff check .
	@ruff format --check .
	@mypy

bench: java $(installed) ## the benchmarks, each beside its peers; BENCHMARKS=etl.scale ARGS="--rows 1000000" for one
	@set -e; for name in $(BENCHMARKS); do python -m benchmarks.$$name $(ARGS); done

figures: java $(installed) ## every pipeline of the README's table on its real data, beside what was asked; ONLY=trec for one
	@PYTHONPATH=. python -m benchmarks.conf.figures $(if $(ONLY),--only $(ONLY)) $(ARGS)

clean: ## remove environments and caches; data, runs and mlflow.db stay
	@rm -rf $(VENV) .venv-peers build *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@cluster/local/java.sh

$(installed): setup.cfg constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@echo "installing into $(VENV), once: some minutes" >&2
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@# torch first, before anything else may ask for a newer one.
	@$(VENV)/bin/python -m pip install -qq --constraint constraints.txt torch
	@$(VENV)/bin/python -m pip install -qq --constraint constraints.txt --editable '.[dev]'
	@# Where a plain spark-submit looks: without it Spark prints some fifty lines before a job's first.
	@$(VENV)/bin/python cluster/local/quiet_spark.py
	@touch $@

$(server): $(installed)
	@$(VENV)/bin/python -m pip install -qq --constraint constraints.txt --editable '.[server]'
	@touch $@
