# Every target works alone on a fresh clone: it makes .venv, builds the package into it, and runs.
#
#   make demo [TORCH=torch]   train a small language model with AdamW and all seven optimizers
#   make test                 all tests; what is skipped is listed with the reason
#   make bench [BENCH_ARGS=--quick]   every operator and optimizer against its rivals and the machine's limits
#   make bench-peers          .venv-peers, where the packages that are compared with are installed too; `make bench`
#                             runs there from then on
#   make lint                 ruff, mypy, import-linter
#   make wheel                dist/*.whl
#
# The environment is pinned by constraints.txt; TORCH=torch takes the torch that the machine's index gives.

PYTHON ?= python3
TORCH ?= torch==2.13.0
PYTEST_ARGS ?=
BENCH_ARGS ?=

VENV := .venv
RUN := $(VENV)/bin/python
ifeq ($(TORCH),torch)
PINS := grep -v '^torch=\|^triton=' constraints.txt
else
PINS := cat constraints.txt
endif
PIP := $(RUN) -m pip --disable-pip-version-check
PEERS := .venv-peers
SOURCES := setup.py pyproject.toml constraints.txt $(shell find csrc -type f)

.PHONY: demo test bench bench-peers paper-table lint wheel clean

demo: $(VENV)/.demo
	$(RUN) examples/train_lm.py

test: $(VENV)/.test
	$(RUN) -m pytest $(PYTEST_ARGS)

ifneq ($(wildcard $(PEERS)/.peers),)
bench: $(PEERS)/.peers
	$(PEERS)/bin/python -m bench $(BENCH_ARGS)
else
bench: $(VENV)/.bench
	$(RUN) -m bench $(BENCH_ARGS)
endif

# Each peer asks for a torch of its own, so they are installed without their dependencies, beside one torch.
bench-peers: $(PEERS)/.peers

$(PEERS)/.peers: bench/peers.txt
	$(MAKE) VENV=$(PEERS) $(PEERS)/.bench
	$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r bench/peers.txt
	touch $@

paper-table: $(VENV)/.bench
	$(RUN) -m bench --paper-table

lint: $(VENV)/.test
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports

wheel: $(VENV)/.torch
	$(PIP) wheel --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) $(PEERS) build dist *.egg-info kpop_kernels/_native.*.so .cache

$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip
	$(PINS) > $(VENV)/constraints.txt
	$(PIP) install --quiet -c $(VENV)/constraints.txt numpy '$(TORCH)'
	touch $@

$(VENV)/.demo $(VENV)/.test $(VENV)/.bench: $(VENV)/.%: $(VENV)/.torch $(SOURCES)
	$(PIP) install --quiet -c $(VENV)/constraints.txt -e '.[$*]'
	touch $@
