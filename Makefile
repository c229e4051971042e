# Everything a person or a machine does with this project. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The interpreter is searched for (.ci/python) unless it is given: make setup PYTHON=/path/to/python3
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
# Most tests wait for something most of the time, so two processes halve the time; a file stays in one of them.
SIDE_BY_SIDE ?= -n 2 --dist loadfile -p tests.slow_first --no-loadscope-reorder

.PHONY: bench bench-quick bench-redaction client help setup demo test test-peers nightly lint docs
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The stamps hold the interpreter and the pins that the environment was made from, so a second call costs nothing. What
# only runs the gateway comes first and alone: it is half of the whole, and all that `make demo` needs.
$(VENV)/.run: requirements/run.txt
	@python="$(PYTHON)"; python="$${python:-$$(.ci/python 3 11)}" || true; \
	if ! "$${python:-false}" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo "toolrelay needs Python >= 3.11 with venv; set PYTHON=/path/to/python3"; exit 2; fi; \
	echo "setting up $(VENV) (once)"; \
	test -x $(BIN)/python || "$$python" -m venv $(VENV)
	@$(PIP) --require-hashes --only-binary :all: -r requirements/run.txt
	@touch $@

$(VENV)/.stamp: $(VENV)/.run requirements/dev.txt pyproject.toml
	@$(PIP) --require-hashes --only-binary :all: -r requirements/dev.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(VENV)/.stamp ## the environment alone (.venv), nothing outside this folder

demo: $(VENV)/.run ## the gateway, an embedded Redis, the demo agent and a page to try it (PORT=8080)
	@exec $(BIN)/python -m gateway.cli.main demo $(if $(PORT),--port $(PORT))

# tests.lacks skips what needs a peer and says at the end what this machine lacks.
test: setup ## the whole suite against a real Redis, at most 15 minutes
	@$(BIN)/python -m pytest -p tests.lacks -p tests.at_most --at-most 900 -m "not nightly" $(SIDE_BY_SIDE)

test-peers: ## the real peers too: magi-code, the SDK, Chromium, Sentinel, Cluster
	@.ci/peers
	@.venv-peers/bin/python -m pytest -p tests.at_most --at-most 1500 -m "peers and not nightly" $(SIDE_BY_SIDE)

# What is too long for `make test`, the schedules of the bus thirty times as often, and examples that are new each day.
nightly: SEED ?= $(shell date -u +%Y%m%d)
nightly: setup ## the long ones: 10,000 random schedules, outages that do not end, whole Clusters
	@TOOLRELAY_TEST_SCHEDULES=10000 $(BIN)/python -m pytest -p tests.lacks -p tests.at_most --at-most 14400 \
	  --hypothesis-seed=$(SEED) tests/bus/test_bus_schedules.py
	@for seed in $$(seq $(SEED) $$(($(SEED) + 19))); do $(BIN)/python -m pytest -p tests.at_most --at-most 900 \
	  -m "hypothesis and not peers" --hypothesis-seed=$$seed; done
	@$(BIN)/python -m pytest -p tests.lacks -p tests.at_most --at-most 7200 -m nightly
	@if [ -x .venv-peers/bin/python ]; then \
	  .venv-peers/bin/python -m pytest -p tests.at_most --at-most 3600 -m "peers and nightly"; \
	else echo "the peers' environment is not here (make test-peers brings it): its long tests were left out"; fi

lint: setup ## format, rules, types, imports, sizes, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/lint

docs: setup ## write the generated pages (configuration, metrics, command)
	@$(BIN)/python -m gateway.cli.reference docs

bench-quick: setup ## what one call costs: two floors, one node, two nodes; under 2 minutes
	@$(BIN)/python -m benchmarks.run

bench: setup ## the longer run, which writes what it measured into docs/performance.md
	@$(BIN)/python -m benchmarks.run --report

# Alone it needs nothing more; docs/redaction-measured.md says how the two other tools come to stand beside ours.
bench-redaction: setup ## redaction: what is found, what is not, wrongly removed, how fast; other tools beside it
	@$(BIN)/python -m benchmarks.redaction $(if $(ALONE),--alone)

# The tests build it by themselves where Node.js is; what the examples load of it is committed and checked by a test.
client: setup ## build the JavaScript client (clients/js), its generated types, and what the examples load of it
	@.ci/client copies
