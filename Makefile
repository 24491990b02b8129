# Every target works alone on a fresh clone: it makes .venv, builds the package into it, and runs.
#
#   make demo [TORCH=torch]   train a small language model with AdamW and with KPOP
#   make test                 all tests; what is skipped is listed with the reason
#   make lint                 ruff, mypy, import-linter
#   make wheel                dist/*.whl
#
# The environment is pinned by constraints.txt; TORCH=torch takes the torch that the machine's index gives.

PYTHON ?= python3
TORCH ?= torch==2.13.0
PYTEST_ARGS ?=

VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check
SOURCES := setup.py pyproject.toml constraints.txt $(shell find csrc -type f)

.PHONY: demo test lint wheel clean

demo: $(VENV)/.demo
	$(RUN) examples/train_lm.py

test: $(VENV)/.test
	$(RUN) -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports

wheel: $(VENV)/.torch
	$(PIP) wheel --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist *.egg-info kpop_kernels/_native.*.so .cache

$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip
	grep -v '^torch\b\|^triton\b' constraints.txt > $(VENV)/constraints.txt
	echo '$(TORCH)' | grep -v '^torch$$' >> $(VENV)/constraints.txt || true
	$(PIP) install --quiet -c $(VENV)/constraints.txt numpy '$(TORCH)'
	touch $@

$(VENV)/.demo $(VENV)/.test: $(VENV)/.%: $(VENV)/.torch $(SOURCES)
	$(PIP) install --quiet -c $(VENV)/constraints.txt -e '.[$*]'
	touch $@
