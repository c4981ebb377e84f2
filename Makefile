# The words of this project. `make help` lists them; CI calls the same ones.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CACHE ?= $(HOME)/.cache/trainmaster
UV_VERSION := 0.13.8
UV := $(CACHE)/uv-$(UV_VERSION)/bin/uv
PY := .venv/bin/python

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(UV):
	@python3 -m venv $(CACHE)/uv-$(UV_VERSION)
	@$(CACHE)/uv-$(UV_VERSION)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.venv/.ready: $(UV) pyproject.toml requirements/dev.lock
	@echo "Setting up .venv from requirements/dev.lock (torch is 3 GB the first time) ..."
	@test -x $(PY) || $(UV) venv --quiet --python python3 .venv
	@$(UV) pip sync --quiet --python $(PY) --require-hashes requirements/dev.lock requirements/build.lock
	@$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

setup: .venv/.ready  ## Make .venv from the lock file

lock: $(UV)  ## Resolve pyproject.toml anew into requirements/*.lock
	$(UV) pip compile $(LOCK_FLAGS) pyproject.toml --extra operator --extra trainer --group dev -o requirements/dev.lock
	$(UV) pip compile $(LOCK_FLAGS) pyproject.toml --extra operator -c requirements/dev.lock -o requirements/operator.lock
	$(UV) pip compile $(LOCK_FLAGS) pyproject.toml --extra trainer -c requirements/dev.lock -o requirements/trainer.lock
	printf "hatchling==1.33.0\neditables\n" | $(UV) pip compile $(LOCK_FLAGS) - -c requirements/dev.lock -o requirements/build.lock
LOCK_FLAGS := --quiet --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11

.PHONY: help setup lock
