# `make demo`, `make test` and `make check` each set up .venv when it is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
DEFAULT := not slow and not gpu and not reliability
PRECISE := $(shell grep -rl --include='test_*.py' 'mark\.precise' tests)
# Two public settings: small programs that run a few times need not be fast.
FAST_COMPILE = JAX_DISABLE_MOST_OPTIMIZATIONS=1 \
	XLA_FLAGS="$$($(BIN)/python tests/fast_compile.py)"

# The configurations that `make topologies` compiles: those of BERT.
CONFIGS := $(shell grep -l PretrainConfig configs/bert_*.py configs/lamb_*.py)

.PHONY: demo test reliability check topologies clean

demo: $(READY)
	$(BIN)/bert-jax demo

# First what must be compiled as users compile it, then the rest.
test: $(READY)
	$(PYTEST) -m "precise and $(DEFAULT)" $(PRECISE)
	$(FAST_COMPILE) $(PYTEST) -m "not precise and $(DEFAULT)"

# The whole counts of tests/reliability: under an hour on two cores. All processes share the
# one directory of compiled programs that tests/conftest.py makes.
reliability: $(READY)
	$(FAST_COMPILE) $(PYTEST) -m reliability

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# docs/hardware.md: hours on two cores; what is in build/hardware is not compiled again.
# GPUs' compiler is JAX's plugin of the same version, and ptxas; a GPU's driver is not needed.
topologies: $(READY)
	$(BIN)/python -m pip install --quiet nvidia-cuda-nvcc-cu12 \
		"jax-cuda12-plugin==$$($(BIN)/python -c 'import jaxlib; print(jaxlib.__version__)')"
	$(BIN)/bert-jax benchmark hardware --configs $(CONFIGS) --output docs/hardware.md

$(READY): setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
