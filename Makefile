# Every target installs what it needs into .venv, once. setup.cfg has the ranges of versions, constraints.txt the tested ones, and
# requirements.lock the hashes of their files.
PYTHON ?= python3
VENV ?= .venv
PORT ?= 5000
DOCS_PORT ?= 8800
ARGS ?=
BENCHMARKS ?= etl.against_by_hand loader.against_peers loader.shuffle_quality train.against_bare exact.against_ddp
ONLY ?=

processes := -n 2 --dist loadgroup --no-loadscope-reorder

# Images for containers often set it. Every process would then compile what it imports: a small training takes 1.7 times as long.
unexport PYTHONDONTWRITEBYTECODE

venv := $(VENV)/installed-uv
packages := $(VENV)/installed-packages
torch := $(VENV)/installed-torch
project := $(VENV)/installed-project
installed := $(VENV)/installed
spark := $(VENV)/installed-spark
server := $(VENV)/installed-server
docs := $(VENV)/installed-docs
interpreter := $(VENV)/triton/installed
locked := --no-deps --no-build-isolation --require-hashes --requirement requirements.lock
export PATH := $(abspath $(VENV))/bin:$(PATH)
# Absolute, since servers and jobs run in other folders. `abspath` would split it at spaces.
home := $(or $(value LOCKSTEP_HOME),$(CURDIR))
override LOCKSTEP_HOME := $(if $(filter /%,$(firstword $(home))),$(home),$(CURDIR)/$(home))
export LOCKSTEP_HOME

.PHONY: help demo test test-all test-quick test-cluster test-gpu bench-gpu test-exports xla executorch docs docs-serve pages chaos ui lint lock bench figures clean java cluster-up cluster-status cluster-down

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "Variables: PYTHON=python3.12, PORT=5000 of the UI, LOCKSTEP_HOME=folder of data, runs and mlflow.db"

demo: java $(installed) ## train a tracked model of digits from raw data, with Spark, Ray Train and MLflow
	@python cluster/local/demo.py $(ARGS)
	@$(MAKE) --no-print-directory $(spark)

test: java $(spark) $(interpreter) ## run the tests of every stage, capability and fault, in two processes; ARGS="-n 0 tests/unit -k order" runs some in one
	@python -m pytest $(processes) -m "not full" $(ARGS)

test-all: java $(spark) $(server) $(interpreter) ## run all tests: every combination, signals in all stages, documents, benchmarks in small, a cluster on one host
	@python -m pytest $(processes) $(ARGS)
	@$(MAKE) --no-print-directory test-cluster ARGS=tests/cluster/test_cluster.py

test-quick: $(installed) ## run the quick tests: no Spark, no Ray, no worker groups; five minutes
	@python -m pytest $(processes) -m "not slow and not full" tests/unit tests/applications $(ARGS)

docs: pages $(docs) ## generate pages from the code, then build the site in build/site; a broken link or anchor is an error
	@NO_MKDOCS_2_WARNING=1 python -m mkdocs build
	@echo "build/site/index.html"

docs-serve: pages $(docs) ## show README and docs as a site, at 127.0.0.1 and DOCS_PORT
	@NO_MKDOCS_2_WARNING=1 python -m mkdocs serve --dev-addr 127.0.0.1:$(DOCS_PORT)

# The page of all settings and that of the architecture come from the code; then all pages as sources of the site, in build/pages.
pages: $(installed)
	@python -m pipelines.config.reference > docs/reference/config.md.new && mv docs/reference/config.md.new docs/reference/config.md
	@PYTHONPATH=.:tests:tests/unit python tests/architecture.py
	@python docs/site/assemble.py

chaos: java $(spark) ## inject faults into real processes at random moments, and check the outcomes; ARGS="--cases etl fuzz" selects
	@PYTHONPATH=.:tests:cluster/local python -m chaos $(ARGS)

ui: $(installed) ## show the runs in MLflow's UI
	@cluster/local/ui.sh $(PORT)

cluster-up: java $(spark) $(server) ## start Spark, Ray, and MLflow on PostgreSQL as servers on this machine; run again to restart dead ones
	@cluster/local/postgres.sh
	@python cluster/local/control.py up

cluster-status: $(server) ## show which servers answer, and their addresses
	@python cluster/local/control.py status

cluster-down: $(server) ## stop jobs, then the servers; keep data and logs
	@python cluster/local/control.py down

test-cluster: java $(spark) $(server) ## test such a cluster on one host, on five, and on Slurm: half an hour
	@cluster/local/postgres.sh
	@python -m pytest $(or $(ARGS),tests/cluster)

test-gpu: $(installed) ## run the tests on a GPU: batches, tasks, strategies and whole runs
	@python -m pytest $(or $(ARGS),tests/gpu)

bench-gpu: $(installed) ## measure on a GPU in ten minutes, most telling first: GPT-2 and its parts, the perceptron, ResNet-50; dated results
	@python -m benchmarks.gpu.training --models gpt2 perceptron ResNet $(ARGS)
	@python -m benchmarks.gpu.parts $(ARGS)

xla: .venv-xla/installed ## make .venv-xla, an environment with XLA for exports to stablehlo: 1.5 GB

executorch: .venv-executorch/installed ## make .venv-executorch, an environment for exports to executorch: 1.5 GB

test-exports: $(installed) .venv-xla/installed .venv-executorch/installed ## test exports for FPGAs, TPUs and phones, which need 3 GB more of packages
	@$(VENV)/bin/python -m pip install -qq --constraint constraints.txt --editable '.[hls4ml]'
	@python -m pytest $(or $(ARGS),tests/exports)

.venv-xla/installed: constraints.txt
	@test -x .venv-xla/bin/python || $(PYTHON) -m venv .venv-xla
	@.venv-xla/bin/python -m pip install -qq --constraint constraints.txt torch
	@.venv-xla/bin/python -m pip install -qq --constraint constraints.txt jax torchax flatbuffers
	@touch $@

# executorch needs other versions of scikit-learn, pytest and more than those in constraints.txt, so only these two are pinned.
.venv-executorch/installed: constraints.txt
	@test -x .venv-executorch/bin/python || $(PYTHON) -m venv .venv-executorch
	@grep -e '^torch==' -e '^executorch==' constraints.txt > .venv-executorch/constraints.txt
	@.venv-executorch/bin/python -m pip install -qq --constraint .venv-executorch/constraints.txt torch executorch
	@touch $@

lint: $(installed) ## run ruff and mypy
	@ruff check .
	@ruff format --check .
	@mypy

lock: $(installed) ## write requirements.lock anew, after a change of setup.cfg or constraints.txt: hashes of all files of each version
	@python cluster/local/lock.py

bench: java $(spark) ## run the benchmarks, each with its peers; BENCHMARKS=etl.scale ARGS="--rows 1000000" runs one
	@set -e; for name in $(BENCHMARKS); do python -m benchmarks.$$name $(ARGS); done

figures: java $(spark) ## run every included pipeline on its real data, and compare with its target; ONLY=trec runs one
	@PYTHONPATH=. python -m benchmarks.conf.figures $(if $(ONLY),--only $(ONLY)) $(ARGS)

clean: ## remove environments and caches; keep data, runs and mlflow.db
	@rm -rf $(VENV) .venv-peers .venv-xla .venv-executorch build *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@cluster/local/java.sh

# First what builds packages, and uv, which installs the others in a quarter of pip's processor time.
$(venv): setup.cfg constraints.txt requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@echo "installing into $(VENV), once; this takes some minutes" >&2
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@awk '/^(setuptools|uv)==/, !/\\$$/' requirements.lock | $(VENV)/bin/python -m pip install -qq --no-deps --require-hashes --requirement /dev/stdin
	@touch $@

# Copies, since links would lead into uv's cache. Where it fails, as behind an index that only pip's settings name, pip does it.
$(packages): $(venv)
	@$(VENV)/bin/uv pip install -q --link-mode copy --python $(VENV)/bin/python $(locked) 2>/dev/null || $(VENV)/bin/python -m pip install -qq $(locked)
	@touch $@

# torch has no hash: its build differs between indexes.
$(torch): $(venv)
	@$(VENV)/bin/python -m pip install -qq --no-deps --constraint constraints.txt torch
	@touch $@

$(project): $(venv)
	@$(MAKE) --no-print-directory --jobs=2 $(packages) $(torch)
	@# What torch requires is there by now, but for packages for GPUs.
	@$(VENV)/bin/python -m pip install -qq --constraint constraints.txt torch
	@$(VENV)/bin/python -m pip install -qq --no-deps --no-build-isolation --editable .
	@touch $@

# Log settings for a plain spark-submit: without them Spark prints some fifty lines before a job's first. And options of Java.
$(installed): $(project) cluster/local/quiet_spark.py cluster/local/spark/log4j2.properties pipelines/spark/java_options.py
	@$(VENV)/bin/python cluster/local/quiet_spark.py
	@touch $@

# Java starts in half of the time from an archive of the classes that an ETL loads.
$(spark): $(installed) cluster/local/class_archive.py
	@echo "writing an archive of Java's classes, once: from then on Spark starts in half of the time; this takes a minute" >&2
	@PYTHONPATH=. $(VENV)/bin/python cluster/local/class_archive.py || true
	@touch $@

# Kernels for GPUs, tested in Triton's interpreter. In a folder of its own, since torch for CUDA brings the version that it needs. Where
# there is no such wheel, the test is skipped.
$(interpreter): $(project)
	@$(VENV)/bin/python -m pip install -qq --no-deps --target $(VENV)/triton triton==3.9.0 && touch $@ || echo "no Triton, so kernels for GPUs are not tested" >&2

$(server): $(project)
	@$(VENV)/bin/python -m pip install -qq --constraint constraints.txt --editable '.[server]'
	@touch $@

$(docs): $(project)
	@$(VENV)/bin/python -m pip install -qq --constraint constraints.txt --editable '.[docs]'
	@touch $@
