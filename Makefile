# `make test` and `make check` set up .venv when it is needed; `make demo` and `make light`
# an environment of what users need, without TensorFlow.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
DOCS := $(VENV)/.installed_docs
LOWEST := build/lowest
LIGHT := build/light
LOWEST_TESTS := $(addprefix tests/,config metrics masking model/test_model.py \
	test_tokenization.py data/test_vocabulary.py data/test_structured.py \
	training/test_fit.py tasks/test_text_classification.py \
	inference/test_predictor.py inference/test_prediction_files.py \
	formats/test_families.py formats/test_embedding.py apps/convert/test_export.py \
	apps/convert/test_onnx.py test_serving.py training/test_loggers.py apps/experiments)
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
DEFAULT := not slow and not gpu and not reliability
PRECISE := $(shell grep -rl --include='test_*.py' 'mark\.precise' tests)
# Two public settings: small programs that run a few times need not be fast.
FAST_COMPILE = JAX_DISABLE_MOST_OPTIMIZATIONS=1 \
	XLA_FLAGS="$$($(BIN)/python tests/fast_compile.py)"

# The configurations that `make topologies` compiles: those of BERT.
CONFIGS := $(shell grep -l PretrainConfig configs/bert_*.py configs/lamb_*.py)

TESTS := tests

# With it, each process that a test starts would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test slow machines reliability lowest light coverage check docs topologies clean

demo: $(LIGHT)/.installed
	$(LIGHT)/bin/bert-jax demo

# First what must be compiled as users compile it, then the rest.
test: $(READY)
	$(PYTEST) -m "precise and $(DEFAULT)" $(PRECISE)
	$(FAST_COMPILE) $(PYTEST) -m "not precise and $(DEFAULT)"

# The whole counts of tests/reliability: about half an hour on two cores. All processes share the
# one directory of compiled programs that tests/conftest.py makes.
reliability: $(READY)
	$(FAST_COMPILE) $(PYTEST) -m reliability

# What `make test` leaves out because it takes minutes, compiled as users compile it.
slow: $(READY) $(DOCS)
	$(PYTEST) -m "slow and not gpu"

# The tests of numbers with the vectors of other x86 processors, and with one and two
# threads; an hour or more on two cores.
machines: $(READY)
	$(BIN)/python tests/machines.py -n 2 --dist worksteal

# The lowest versions that setup.cfg allows, in an environment of their own, without
# Apache Beam and compilers of TPUs. Warnings, of old libraries about newer ones, are no
# errors here.
lowest: $(LOWEST)/.installed
	XLA_FLAGS="$$($(LOWEST)/bin/python tests/fast_compile.py)" \
		JAX_DISABLE_MOST_OPTIMIZATIONS=1 \
		$(LOWEST)/bin/python -m pytest -n 2 --dist worksteal -m "$(DEFAULT)" \
		-W default $(LOWEST_TESTS)

# Every verb in an environment without TensorFlow, installed as README.md says.
light: $(LIGHT)/.installed
	$(LIGHT)/bin/python -m pip install --quiet beartype chex hypothesis pytest
	$(LIGHT)/bin/python -m pytest tests/test_light_install.py

# Of the package by `make test`, or by a part of it: make coverage TESTS=tests/config.
coverage: $(READY)
	$(FAST_COMPILE) $(PYTEST) -m "not precise and $(DEFAULT)" --cov --cov-report=term \
		--cov-report=html $(TESTS)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The site, in build/site; a broken link or anchor is an error. To look at it:
# .venv/bin/python -m http.server --directory build/site
docs: $(DOCS)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# docs/hardware.md: hours on two cores; what is in build/hardware is not compiled again.
# GPUs' compiler is JAX's plugin of the same version, and ptxas; neither CUDA's libraries, which
# the plugin looks for first, nor a GPU's driver are needed.
topologies: $(READY)
	$(BIN)/python -m pip install --quiet nvidia-cuda-nvcc-cu12 \
		"jax-cuda12-plugin==$$($(BIN)/python -c 'import jaxlib; print(jaxlib.__version__)')"
	JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 \
		$(BIN)/python tools/hardware/hardware.py --configs $(CONFIGS) --output docs/hardware.md

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

$(LOWEST)/.installed: setup.cfg pyproject.toml tests/lowest.txt
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --upgrade pip
	$(LOWEST)/bin/python -m pip install --quiet --constraint tests/lowest.txt \
		--editable '.[test,experiments,gcs,notebooks,onnx,tensorboard,wandb]'
	touch $@

$(LIGHT)/.installed: setup.cfg pyproject.toml requirements-light.txt
	$(PYTHON) -m venv $(LIGHT)
	$(LIGHT)/bin/python -m pip install --quiet --upgrade pip
	$(LIGHT)/bin/python -m pip install --quiet --requirement requirements-light.txt
	$(LIGHT)/bin/python -m pip install --quiet --no-deps --editable .
	touch $@

$(READY): setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
