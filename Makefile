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
	@$(UV) pip sync --python $(PY) --require-hashes requirements/dev.lock requirements/build.lock
	@$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@$(PY) -m ensurepip >/dev/null  # what is missing in a job's environment is named with its pip install
	@$(PY) $(KEEP_BYTECODE) $(IMPORTED) xdist.remote pytest_asyncio hypothesis kopf kubernetes rich.live
	@touch $@

# Under PYTHONDONTWRITEBYTECODE, which containers often set, each of a thousand processes would compile torch anew (2 s).
KEEP_BYTECODE = -c 'import importlib, sys; sys.dont_write_bytecode = False; [*map(importlib.import_module, sys.argv[1:])]'
IMPORTED := $(addprefix torch.,distributed.fsdp distributed.tensor.parallel distributed.tensor.debug utils.data \
  distributed.algorithms.ddp_comm_hooks.powerSGD_hook distributed.pipelining _inductor.compile_fx) safetensors.torch s3fs pydantic aiohttp yaml

setup: .venv/.ready  ## Make .venv from the lock file

.venv-xla/.ready: $(UV) pyproject.toml requirements/xla.lock
	@echo "Setting up .venv-xla from requirements/xla.lock (another torch of 3 GB the first time) ..."
	@test -x .venv-xla/bin/python || $(UV) venv --quiet --python python3 .venv-xla
	@$(UV) pip sync --python .venv-xla/bin/python --require-hashes requirements/xla.lock requirements/build.lock
	@$(UV) pip install --quiet --python .venv-xla/bin/python --no-deps --no-build-isolation --editable .
	@PJRT_DEVICE=CPU .venv-xla/bin/python $(KEEP_BYTECODE) torch_xla.distributed torch_xla.runtime torch.distributed.tensor pydantic aiohttp yaml
	@touch $@

setup-xla: .venv-xla/.ready  ## Make .venv-xla: the trainer on XLA devices (TPU)

# An environment per family of frameworks, for the tests: beside the other caches, as all checkouts can share them.
FRAMEWORKS := $(CACHE)/frameworks
$(FRAMEWORKS)/%/.ready: $(UV) requirements/frameworks/%.lock
	@echo "Setting up $(@D) from requirements/frameworks/$*.lock ..."
	@test -x $(@D)/bin/python || $(UV) venv --quiet --python python3 $(@D)
	@$(UV) pip sync --quiet --python $(@D)/bin/python --require-hashes requirements/frameworks/$*.lock
	@touch $@

$(FRAMEWORKS)/horovod/.ready: $(UV) requirements/frameworks/horovod.lock requirements/frameworks/build_horovod.sh
	@echo "Setting up $(@D) from requirements/frameworks/horovod.lock, and building Horovod (5 minutes) ..."
	@test -x $(@D)/bin/python || $(UV) venv --quiet --python python3 $(@D)
	@$(UV) pip sync --quiet --python $(@D)/bin/python --require-hashes requirements/frameworks/horovod.lock
	@requirements/frameworks/build_horovod.sh $(@D) $(UV) pip install --python $(@D)/bin/python
	@touch $@

QUICK_FRAMEWORKS := $(addprefix $(FRAMEWORKS)/,$(addsuffix /.ready,jax boost mpi trackers))
SLOW_FRAMEWORKS := $(addprefix $(FRAMEWORKS)/,$(addsuffix /.ready,tensorflow sagemaker horovod ray spark adapters deepspeed))
setup-frameworks: $(QUICK_FRAMEWORKS) $(SLOW_FRAMEWORKS)  ## Make the environments of other frameworks, for their tests

DOCS := $(CACHE)/docs
$(DOCS)/.ready: $(UV) requirements/docs.lock
	@test -x $(DOCS)/bin/python || $(UV) venv --quiet --python python3 $(DOCS)
	@$(UV) pip sync --quiet --python $(DOCS)/bin/python --require-hashes requirements/docs.lock
	@touch $@

docs: $(DOCS)/.ready  ## Build the documentation as a site into build/site; links are checked
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict

pictures: $(DOCS)/.ready .venv/.ready  ## Draw the terminal of a run that loses a worker: docs/plots/run.svg
	@$(DOCS)/bin/python docs/run_picture.py .venv/bin/trainmaster

docs-serve: $(DOCS)/.ready  ## Show the site while you write: http://127.0.0.1:8000
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs serve

RELEASE := $(CACHE)/release
$(RELEASE)/.ready: $(UV) requirements/release.lock
	@test -x $(RELEASE)/bin/python || $(UV) venv --quiet --python python3 $(RELEASE)
	@$(UV) pip sync --quiet --python $(RELEASE)/bin/python --require-hashes requirements/release.lock
	@touch $@

lock: $(UV)  ## Resolve pyproject.toml anew into requirements/*.lock
	$(UV) pip compile $(LOCK_FLAGS) pyproject.toml --extra operator --extra trainer --group dev -o requirements/dev.lock
	$(UV) pip compile $(LOCK_FLAGS) pyproject.toml --extra operator -c requirements/dev.lock -o requirements/operator.lock
	$(UV) pip compile $(LOCK_FLAGS) pyproject.toml --extra trainer --extra s3 -c requirements/dev.lock -o requirements/trainer.lock
	$(UV) pip compile $(LOCK_FLAGS) pyproject.toml requirements/xla.in -o requirements/xla.lock
	for name in $(basename $(notdir $(wildcard requirements/frameworks/*.in))); do \
	  test ! -e requirements/frameworks/$$name.overrides || set -- --overrides requirements/frameworks/$$name.overrides; \
	  $(UV) pip compile $(LOCK_FLAGS) "$$@" requirements/frameworks/$$name.in -o requirements/frameworks/$$name.lock || exit 1; \
	  set --; done
	$(UV) pip compile $(LOCK_FLAGS) requirements/docs.in -o requirements/docs.lock
	$(UV) pip compile $(LOCK_FLAGS) requirements/release.in -o requirements/release.lock
	printf "hatchling==1.33.0\neditables\n" | $(UV) pip compile $(LOCK_FLAGS) - -c requirements/dev.lock -o requirements/build.lock
LOCK_FLAGS := --quiet --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11

.PHONY: help setup setup-xla setup-frameworks docs docs-serve pictures lock

quickstart: .venv/.ready  ## Train handwritten digits with 4 local workers, one of which is killed on the way
	.venv/bin/trainmaster run examples/digits/job.yaml --fault kill:worker/1@step=120

# Checkouts share what mypy remembers: it looks at the text of a file whose time it does not know.
lint: .venv/.ready  ## Format, lint, layers, types
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/ruff check --quiet .
	@.venv/bin/lint-imports > .venv/.layers 2>&1 || { cat .venv/.layers; exit 1; }
	@.venv/bin/mypy --no-error-summary --cache-dir=$(CACHE)/mypy operator trainer tests tools bench docs charts

check: lint  ## Lint and the fast tests: under a minute
	@$(PY) -m pytest -q --numprocesses=2 --dist=loadscope $(FAST_TESTS)
FAST_TESTS := tests/core tests/advice tests/api tests/wire tests/house

test: lint docs $(RELEASE)/.ready .venv-xla/.ready $(QUICK_FRAMEWORKS)  ## Every test, the real cluster included
	@$(PY) -c 'from tools.onebox import binaries; binaries.ensure()'  # before the first test that needs one
	@$(PY) -m pytest $(SIDE_BY_SIDE) $(TEST_FLAGS) --ignore=tests/frameworks/slow --ignore=tests/gpu tests
SIDE_BY_SIDE := --numprocesses=4 --dist=loadscope --no-loadscope-reorder  # tests/conftest.py says who; empty: one after the other

test-prometheus: .venv/.ready  ## Alerts and dashboards with a real Prometheus, which is built first (10 minutes)
	@$(PY) -m pytest tests/cluster/real_prometheus.py

test-frameworks: .venv/.ready setup-frameworks  ## The tests of other frameworks, the slow ones included
	@$(PY) -m pytest tests/frameworks

test-gpu: .venv/.ready  ## The tests that need a GPU, on a machine that has one
	@$(PY) -m pytest tests/gpu

simulate: .venv/.ready  ## Inject faults into the simulated world: make simulate N=10000 (lives; 0: no end) FIRST=10000000 (members that come and go) FIRST=20000000 (pairs of deaths)
	@$(PY) -m tests.simulation --seeds $(or $(N),1000) --first $(or $(FIRST),0)

soak: .venv/.ready  ## The long forms of tests (a hundred kills, a whole bad week, ...); whole runs with random strategies, sizes and faults: make soak [N=300] [FIRST=1]
	@$(PY) -m pytest --verbose -m soak tests
	@$(PY) -m tests.soak --runs $(or $(N),300) --first $(or $(FIRST),1)

mutants: .venv/.ready  ## Put thirty-one bugs into a copy of the code, one at a time: the tests must see each (10 minutes)
	@$(PY) -m tests.mutants $(NAME)

generate: .venv/.ready  ## Write the CRD, its reference page and the chart's copy anew
	@$(PY) -m trainmaster.api.generate
	@$(PY) -m charts.generate
	@$(PY) -m charts.kustomize
	@$(PY) docs/generate.py
	@$(PY) -m docs.strategy_pages
	@$(PY) -m docs.monitoring_page
	@$(PY) -m docs.commands_page
	@$(PY) -m docs.troubleshooting_page
	@$(PY) -m docs.values_page

images: .venv/.ready  ## Build both images and load them into the one-machine cluster
	@$(PY) -m tools.onebox images

release: .venv/.ready $(RELEASE)/.ready  ## Make dist/: wheel, chart, image archives (root), bills of materials, checksums
	@$(PY) -m tools.release

cluster-up: .venv/.ready  ## Start a real one-machine Kubernetes with the operator in it
	@$(PY) -m tools.onebox up

cluster-down: .venv/.ready  ## End it, and leave nothing behind
	@$(PY) -m tools.onebox down

bench: .venv/.ready  ## Measure beside the peers: make bench [NAME=restart]
	@$(PY) -m bench $(NAME)

.PHONY: quickstart lint check test test-prometheus test-frameworks test-gpu soak mutants simulate generate images release cluster-up cluster-down bench
