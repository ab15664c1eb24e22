# Two commands do everything on a fresh machine with Python 3.11+ and make:
#   make run    environment, hooks registered, daemon in the foreground
#   make test   environment, then every test that can run here
# Both can be run again at any time: what is there already is kept.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test
.DEFAULT_GOAL := run

run: $(VENV)/ready
	@exec $(BIN)/kimiaepd up

test: $(VENV)/ready
	@exec $(BIN)/python -m pytest $(PYTEST_ARGS)

# An interrupted set-up leaves no `ready`, so the next run begins it again.
$(VENV)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "kimiaepd needs Python 3.11 or later; say which with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "this Python has no venv module; on Debian: apt install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
