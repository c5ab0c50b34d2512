# One command each. Everything is installed into .venv in this checkout; a second call reuses it.
SHELL := /bin/bash
PYTHON ?= python3
PORT ?= 3000
VENV := .venv
BIN := $(VENV)/bin
# What is imported is compiled then, and kept: most of what is installed never is.
export PYTHONDONTWRITEBYTECODE :=
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt
# uv takes a third of pip's time; where it cannot (it knows no index of pip's own settings), pip does it.
INSTALL := bash -c '$(UV) "$$@" || { echo "uv could not; by pip ..." && $(PIP) "$$@"; }' install
export DAGSTER_HOME := $(CURDIR)/.dagster
export DAGSTER_DISABLE_TELEMETRY := 1

.DEFAULT_GOAL := help
.PHONY: help setup instance demo test test-all setup-ui test-ui test-ray test-cuda chaos dev check commands bench bench-long bench-kinds bench-reselection bench-shards bench-release bench-stages bench-audit bench-orchestration bench-gpu clean

help: ## What there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 20

EXTRAS := test,s3
STAMP := $(VENV)/.installed
setup: $(STAMP) ## Create .venv and install everything (torch first: its CPU build where one is offered)

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON): install Python 3.11 or newer"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$$($(PYTHON) --version) is too old: Python 3.11 or newer is needed (make PYTHON=python3.12 ...)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (about a minute) ..."
	@$(PIP) --upgrade pip
	@$(PIP) uv || true
	@$(PIP) torch
	@$(INSTALL) -e '.[$(EXTRAS)]'
	@touch $@

# No target is called by the folder's name: in one with blanks it would be several.
instance:
	@case "$$DAGSTER_HOME" in /*) ;; *) \
		echo "error: DAGSTER_HOME='$$DAGSTER_HOME' is no whole path: DAGSTER_HOME=$$(pwd)/$${DAGSTER_HOME:-home}" >&2; \
		exit 1 ;; \
	esac
	@mkdir -p "$$DAGSTER_HOME"
	@mine="$$DAGSTER_HOME/dagster.yaml"; \
	if [ ! -e "$$mine" ] || cmp -s "$$mine" "$$mine.shipped" || cmp -s "$$mine" dagster.yaml; then \
		cp dagster.yaml "$$mine" && cp dagster.yaml "$$mine.shipped"; \
	elif ! cmp -s dagster.yaml "$$mine.shipped"; then \
		echo "$$mine was changed here and stays; what this version has is dagster.yaml: bring over what you need of it, then \`cp dagster.yaml '$$mine.shipped'\`" >&2; \
	fi

demo: setup instance ## The whole chain through Dagster on the embedded default (SET="select.lamb=0.3" changes settings)
	@$(BIN)/python -m datamask_pipeline.demo $(foreach setting,$(SET),--set '$(setting)')

test: setup ## The tests: all but what takes long (no network, no browser)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not ui and not ray and not chaos" -n auto --dist loadfile --no-loadscope-reorder --maxfail=40

test-all: setup ## With every case of every test, and what takes long (an hour on two cores)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not ui and not ray and not chaos" -n auto --dist loadfile --no-loadscope-reorder --maxfail=40

UI_STAMP := $(VENV)/.ui-test
setup-ui: EXTRAS := $(EXTRAS),ui-test
setup-ui: $(UI_STAMP) ## Install what the tests in a browser need besides

$(UI_STAMP): $(STAMP)
	@$(BIN)/python -c 'import axe_playwright_python' 2>/dev/null || $(INSTALL) -e '.[ui-test]'
	@touch $@

test-ui: setup-ui ## Dagster's page and those of datamask look in a real browser (needs a chromium)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ui tests/ui

test-ray: setup ## A run on two Ray nodes, of which one is lost; a selection by actors on one and on two
	@$(INSTALL) -e '.[ray]'
	@$(BIN)/python -m pytest -m ray tests/pipeline tests/selection/shards

test-cuda: setup ## Selection, encoders and training on a GPU against the processor (needs a CUDA device and a CUDA build of torch)
	@$(BIN)/python -m pytest tests/cuda -n auto

chaos: setup ## A hundred random kill -9 of steps, workers and whole trees of processes (KILLS=20 SEED=7)
	@OMP_NUM_THREADS=1 CHAOS_KILLS=$(or $(KILLS),100) CHAOS_SEED=$(or $(SEED),0) $(BIN)/python -m pytest -s tests/test_chaos.py
	@$(BIN)/python -m pytest -s -m chaos tests/ui

dev: setup instance ## The Dagster UI on http://127.0.0.1:3000 (PORT=3001 for another port)
	@$(BIN)/python -m datamask_pipeline.dev --port $(PORT)

check: setup ## Lint, types, layers, and licences of what is installed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python .ci/licences.py

commands: setup ## Write docs/commands.md anew from what `--help` says of every command
	@$(BIN)/python .ci/commands.py > docs/commands.md.new && mv docs/commands.md.new docs/commands.md

bench: setup ## The engine against its fair opponents (up to 30 minutes)
	@$(INSTALL) -e '.[bench]'
	@$(BIN)/python -m benchmarks

bench-kinds: setup ## Every metric on four kinds of vectors against greedy and exchanges (long)
	@$(INSTALL) -e '.[bench]'
	@$(BIN)/python -m benchmarks --long --only four_kinds along_graph by_distances

bench-long: setup ## What takes longer than that
	@$(INSTALL) -e '.[bench]'
	@$(BIN)/python -m benchmarks --long

bench-reselection: setup ## Five crawls one after the other: going on from the last release against selecting anew
	@$(INSTALL) -e '.[bench]'
	@$(BIN)/python -m benchmarks --only reselection

bench-shards: setup ## One objective over shards of a million and ten million documents (long)
	@$(INSTALL) -e '.[bench]'
	@$(BIN)/python -m benchmarks --only shards shards_facility

bench-release: setup ## A subset joined and published, with texts and without, against a copy (long)
	@$(INSTALL) -e '.[bench]'
	@$(BIN)/python -m benchmarks --only release

bench-stages: setup ## Every stage of a release from a hundred thousand documents to three million (long); STEPS=pool for some alone
	@$(INSTALL) -e '.[bench]'
	@$(BIN)/python -m benchmarks --only stages $(if $(STEPS),--steps $(STEPS))

bench-audit: setup ## Questions put to a record of ten million documents (long)
	@$(INSTALL) -e '.[bench]'
	@$(BIN)/python -m benchmarks --only audit_10m

bench-orchestration: setup ## Dagster against datamask run: one more turn of the demo and of imported embeddings (STEPS=demo)
	@$(INSTALL) -e '.[bench]'
	@$(BIN)/python -m benchmarks --only orchestration $(if $(STEPS),--steps $(STEPS))

bench-gpu: setup ## Learning, embedding and training on a GPU
	@$(BIN)/python -m benchmarks --only gpu_learner gpu_embed gpu_training

clean: ## Remove results and the Dagster instance (not .venv)
	rm -rf .datamask .dagster
