# Two commands do all the set-up: `make demo` and `make test`. pip reads its index and everything else from its own
# configuration and variables; nothing about it is named here.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
# Exits 0 where the interpreter has a torch that is new enough.
HAS_TORCH := import importlib.metadata as m, sys; sys.exit([int(n) for n in m.version("torch").split(".")[:2]] < [2, 11])
# Exits 0 where the interpreter is new enough.
IS_NEW := import sys; sys.exit(sys.version_info < (3, 11))
# Its script lies elsewhere where the environment borrows the package.
LINT_IMPORTS := from importlinter.cli import lint_imports_command; lint_imports_command()

# An activated environment that already has torch is used as it is; any other is left alone and .venv is made.
ifneq ($(VIRTUAL_ENV),)
  ifeq ($(shell '$(VIRTUAL_ENV)/bin/python' -c '$(HAS_TORCH)' 2>/dev/null && echo yes),yes)
    ENV := $(VIRTUAL_ENV)
  endif
endif
ENV ?= .venv
BIN := $(ENV)/bin

# Stamps hold the path of the checkout that they were made for: an environment may be shared, a checkout moved.
RUN_STAMP := $(ENV)/kernelgate-run.stamp
TEST_STAMP := $(ENV)/kernelgate-test.stamp
made_here = $(if $(filter $(CURDIR),$(shell cat $(1) 2>/dev/null)),,not-made-here)

# Tests of the lane that begins with the checks; all others are in the one beside it.
CHECKED := tests/benchmarks tests/budget tests/examples tests/gpu tests/house tests/tasks tests/tools \
	$(addprefix tests/server/,test_server_kills.py test_stdio.py test_http.py test_http_company.py test_leaving_http.py)

.PHONY: help demo test test-long test-gpu measure-gpu clients format snapshots check unit bench checks-first the-others not-made-here
.DELETE_ON_ERROR:

help:
	@echo 'make demo       install, then watch a scripted agent make a real kernel faster'
	@echo 'make test       install, then format, lint, types, contracts, tests, wheel'
	@echo 'make test-long  the tests that take minutes'
	@echo 'make test-gpu   the tests that need a CUDA device'
	@echo 'make measure-gpu OUT=DIR   those, and all that is measured on a CUDA device (about an hour)'
	@echo 'make clients    real MCP clients from npm and the conformance suite, without an account (needs an npm registry)'
	@echo 'make format     rewrite the code in the house style'
	@echo 'make snapshots  rewrite tests/snapshots from the tools; review the diff'
	@echo 'make bench      measure, and write docs/measurements'

demo: $(RUN_STAMP)
	@'$(BIN)/kernelgate' demo

# Two lanes of about the same length; what is not in the one is in the other.
test: $(TEST_STAMP)
	@'$(MAKE)' --no-print-directory -j2 checks-first the-others

checks-first: check
	'$(BIN)/python' -m pytest $(CHECKED) $(ARGS)

the-others: $(TEST_STAMP)
	'$(BIN)/python' -m pytest tests $(addprefix --ignore=,$(CHECKED)) $(ARGS)

# Without node's download: the test extra brings node as a wheel.
check: export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
check: $(TEST_STAMP)
	'$(BIN)/python' -m ruff format --check .
	'$(BIN)/python' -m ruff check .
	'$(BIN)/python' -c '$(LINT_IMPORTS)'
	'$(BIN)/python' -m mypy
	'$(BIN)/python' -m pyright --pythonpath '$(BIN)/python'

unit: $(TEST_STAMP)
	'$(BIN)/python' -m pytest $(ARGS)

test-long: $(TEST_STAMP)
	'$(BIN)/python' -m pytest --long -m long $(ARGS)

test-gpu: $(TEST_STAMP)
	'$(BIN)/python' -m pytest -m gpu $(ARGS)

measure-gpu: $(TEST_STAMP)
	'$(BIN)/python' tests/gpu/whole_host.py '$(OUT)' $(ARGS)
	'$(BIN)/python' tests/benchmarks/collect.py

clients: $(TEST_STAMP)
	'$(BIN)/python' tests/clients/real_clients.py $(ARGS)

format: $(TEST_STAMP)
	'$(BIN)/python' -m ruff format .
	'$(BIN)/python' -m ruff check --fix .

snapshots: $(TEST_STAMP)
	'$(BIN)/python' tests/write_snapshots.py

# One measurement, one script: `make bench BENCH=server_cost` runs that one alone.
BENCH ?= $(filter-out collect measurement bench_% kernelbench_% make_% test_%,$(patsubst tests/benchmarks/%.py,%,$(wildcard tests/benchmarks/*.py)))
bench: $(TEST_STAMP)
	for name in $(BENCH); do echo "measuring $$name"; '$(BIN)/python' tests/benchmarks/$$name.py; done
	'$(BIN)/python' tests/benchmarks/collect.py

$(RUN_STAMP): pyproject.toml constraints.txt $(call made_here,$(RUN_STAMP)) | $(BIN)/python
	$(call install,.)
	@echo '$(CURDIR)' > '$@'

$(TEST_STAMP): pyproject.toml constraints.txt $(call made_here,$(TEST_STAMP)) | $(BIN)/python
	$(call install,.[test])
	@echo '$(CURDIR)' | tee '$(RUN_STAMP)' > '$@'

# The pinned torch is for environments that have none; one that is already there stays.
define install
@pin='-c constraints.txt'; if '$(BIN)/python' -c '$(HAS_TORCH)' 2>/dev/null; then pin=; fi; \
echo "installing kernelgate into $(ENV) (the first time this downloads torch: 0.2 to 2.7 GB, see README)"; \
quiet=--quiet; if [ -t 1 ]; then quiet=; fi; \
'$(BIN)/python' -m pip install $$quiet $$pin -e '$(1)'
endef

# An interpreter that has torch lends it; else the environment stands alone.
.venv/bin/python:
	@if ! '$(PYTHON)' -c '$(IS_NEW)'; then \
	  echo 'kernelgate needs Python 3.11 or newer; name one: make $(MAKECMDGOALS) PYTHON=python3.12' >&2; exit 1; fi
	@lend=; if '$(PYTHON)' -c '$(HAS_TORCH)' 2>/dev/null; then lend=--system-site-packages; fi; \
	'$(PYTHON)' -m venv $$lend .venv
