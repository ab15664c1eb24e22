# These do everything on a fresh machine with Python 3.11+ and make:
#   make demo   environment, then a minute's tour that touches nothing of yours
#   make run    environment, hooks registered, daemon in the foreground
#   make test   environment, then every test that can run here
# All can be run again at any time: what is there already is kept.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo run test
.DEFAULT_GOAL := run

demo: $(VENV)/ready
	@exec $(BIN)/kimiaepd demo

run: $(VENV)/ready
	@exec $(BIN)/kimiaepd up

test: $(VENV)/ready
	@exec $(BIN)/python -m pytest $(PYTEST_ARGS)

# An interrupted set-up leaves no `ready`, so the next run begins it again. What works is not thrown
# away: the environment is made anew only where it has no pip.
$(VENV)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "kimiaepd needs Python 3.11 or later, and $(PYTHON) is none; name one: make $(or $(MAKECMDGOALS),run) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "this Python has no venv module; on Debian: apt install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV), about a minute, from PyPI ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' \
	  || { echo "setting up needs the package index once; mend the network or pip's settings, then run this again" >&2; exit 1; }
	@touch $@
