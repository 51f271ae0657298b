# `make demo` and `make test` need only Python 3.11+ and make: each sets up .venv by itself, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.installed

.PHONY: help demo test unit slow check clean

help:
	@echo "make demo    three arms learn to add, on this machine, in about two minutes"
	@echo "make test    all tests (make unit: the fast ones)"
	@echo "make check   ruff and mypy"
	@echo "make clean   remove .venv and caches"

$(SETUP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || (echo "podsrl needs Python 3.11 or newer; this is `$(PYTHON) --version`: make PYTHON=python3.11" && false)
	$(PYTHON) -m venv $(VENV)
	@echo "installing torch and the rest into $(VENV) (some minutes, once)"
	$(BIN)/pip install --quiet --progress-bar on -c constraints.txt torch
	$(BIN)/pip install --quiet --progress-bar on -c constraints.txt -e '.[dev]'
	@touch $(SETUP)

demo: $(SETUP)
	$(BIN)/pods demo

test: unit slow

unit: $(SETUP)
	OMP_WAIT_POLICY=PASSIVE $(BIN)/pytest -n 2 -m "not slow"

slow: $(SETUP)
	OMP_WAIT_POLICY=PASSIVE $(BIN)/pytest -m slow

check: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis dist build
