# `make demo`, `make test` and `make check` each set up .venv when it is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.PHONY: demo test reliability check clean

demo: $(READY)
	$(BIN)/bert-jax demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal \
		-m "not slow and not gpu and not reliability"

# The whole counts of tests/reliability: under an hour on two cores. All processes share the
# one directory of compiled programs that tests/conftest.py makes.
reliability: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m reliability

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

$(READY): setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
