# `make` lists what there is. Everything it installs lives in .venv; `rm -r .venv .paceline` undoes it all.

PYTHON ?= python3
ARGS ?=

bin := .venv/bin
stamp := .venv/.installed
peers := .venv/peers
linters := .venv/linters

.DEFAULT_GOAL := help
.PHONY: help setup demo test check check-deploy fix run migrate bench bench-peers engine metrics-page dashboards

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile
	@echo "  PYTHON=python3.12 chooses the interpreter of setup; ARGS=... goes to what a target runs."

setup: $(stamp) ## make .venv with everything for work on Paceline

demo: $(stamp) ## show it on a small real model (ARGS=--exit to end by itself)
	@$(bin)/paceline demo $(ARGS)

test: $(stamp) ## run the tests; those that need the real engine are skipped where it was not built
	@$(bin)/pytest $(ARGS)

check: $(stamp) ## lint, format, types, and whether tables and migrations agree
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && export PACELINE_DATA_DIR="$$folder" && \
		unset PACELINE_DATABASE_URL && $(bin)/alembic upgrade head && $(bin)/alembic check

check-deploy: $(stamp) $(linters)/.installed ## check the Dockerfile, compose files, unit and Prometheus' configuration
	@LINTERS=$(linters)/bin PACELINE=$(CURDIR)/$(bin)/paceline deploy/check.sh

fix: $(stamp) ## repair what lint and format can repair by themselves
	$(bin)/ruff check --fix
	$(bin)/ruff format

run: $(stamp) ## run the service with the settings of the environment
	@$(bin)/paceline serve $(ARGS)

migrate: $(stamp) ## bring the database of the settings to the newest schema (the service does so at its start)
	@$(bin)/alembic upgrade head

bench: $(stamp) ## measure what the relay, the planner and the recorder cost
	@$(bin)/python -m bench $(ARGS)

bench-peers: $(stamp) $(peers)/.installed ## the same for LiteLLM's proxy, which goes into an environment of its own
	@$(bin)/python -m bench.peers $(peers)/bin/litellm

metrics-page: $(stamp) ## write docs/metrics.md from the series that there are
	@$(bin)/python -m app.metrics.catalogue > docs/metrics.md

dashboards: $(stamp) ## write the dashboards, and docs/dashboards.md, anew from their source
	@$(bin)/python -m deploy.grafana.source

engine: $(stamp) ## build the real llama-server once (7 minutes), for tests and for use
	@PYTHON=$(bin)/python deploy/engine/build.sh

$(stamp): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Paceline needs Python 3.11 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(bin)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv ..."
	@$(bin)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools wheel
	@# The build backend is in place, at its fixed version: nothing is fetched unseen for the build.
	@$(bin)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt -e '.[dev]'
	@touch $(stamp)

$(peers)/.installed: bench/peers.txt | $(stamp)
	@$(bin)/python -m venv --clear $(peers)
	@echo "installing LiteLLM's proxy into $(peers) (750 MB) ..."
	@$(peers)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -r bench/peers.txt
	@touch $@

$(linters)/.installed: deploy/linters.txt | $(stamp)
	@$(bin)/python -m venv --clear $(linters)
	@echo "installing linters into $(linters) ..."
	@$(linters)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -r deploy/linters.txt
	@touch $@
