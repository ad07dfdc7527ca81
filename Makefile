# The Life of a Token. `make book` and `make test` set up everything that they need.

PYTHON ?= python3
VENV ?= .venv
# A wheel index that has torch, asked for torch alone, e.g. https://download.pytorch.org/whl/cpu (no CUDA, gigabytes less).
TORCH_INDEX ?=
# Which stages of `make test` to run; empty: all. `make test STAGES="unit browser"`
STAGES ?=
PORT ?= 8000

BIN := $(VENV)/bin
PY := $(BIN)/python
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup book test lint fmt mutations gpu-check train train-lab lab serve browser clean

help:
	@echo "make book       build the site into _build/html"
	@echo "make test       run every check (STAGES=\"unit browser\" runs some)"
	@echo "make lab        open the chapters in JupyterLab"
	@echo "make serve      show the built site on http://localhost:$(PORT)"
	@echo "make mutations  break each part of the model and see tests and chapters turn red"
	@echo "make gpu-check  run the complete model on a GPU"
	@echo "make train      train the small model anew (an hour; stop it and start it again at will); make train-lab its relatives"
	@echo "make lint       ruff and mypy;  make fmt  format;  make clean  remove what was built"

setup: $(READY)

# Made when missing, brought up to date when the requirements change.
$(READY): requirements.txt pyproject.toml
	@began=$$(date +%s); set -e; \
	$$(test -x $(PY) && echo $(PY) || echo $(PYTHON)) -c 'import sys; sys.exit("Python 3.11 or later is needed, this is " + sys.version.split()[0] + ": remove $(VENV) if it is there, then make PYTHON=python3.12") if sys.version_info < (3, 11) else None'; \
	test -x $(PY) || $(PYTHON) -m venv $(VENV); \
	echo "Installing into $(VENV): a few minutes the first time."; \
	if [ -n "$(TORCH_INDEX)" ]; then $(PY) -m pip install -q --disable-pip-version-check --index-url "$(TORCH_INDEX)" "$$(grep '^torch==' requirements.txt)"; fi; \
	$(PY) -m pip install -q --disable-pip-version-check -r requirements.txt; \
	$(PY) -m pip install -q --disable-pip-version-check --no-deps -e .; \
	echo $$(( $$(date +%s) - began )) > $@

book: $(READY)
	@$(PY) tools/book.py

test: $(READY)
	@$(PY) tools/test_all.py $(STAGES)

lint: $(READY)
	@$(PY) tools/test_all.py lint types

fmt: $(READY)
	@$(BIN)/ruff check --fix --quiet .; $(BIN)/ruff format --quiet . && $(PY) tools/notebooks.py --write

mutations: $(READY)
	@$(PY) tests/mutations.py --chapters

gpu-check: $(READY)
	@$(PY) -m rnj.gpu_check

# Each command ends by itself and is left alone once it is done: after a stop, `make train` goes on.
train: $(READY)
	$(PY) -m rnj.training train --minutes 22
	$(PY) -m rnj.training names --minutes 22
	$(PY) -m rnj.training extend --minutes 20
	@echo "Into the package: $(PY) -m rnj.training export"

# The ladder, the twin and the race of feed-forward forms, then the table of long contexts.
train-lab: $(READY)
	$(PY) -m rnj.lab.ladder
	$(PY) -m rnj.lab.ladder --collect
	$(PY) -m rnj.lab.long_context

lab: $(READY)
	@$(BIN)/jupyter lab book

serve:
	@test -f _build/html/index.html || { echo "Nothing is built yet: make book"; exit 1; }
	@echo "http://localhost:$(PORT)  (Ctrl+C ends it)"; $(PYTHON) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

browser: $(READY)
	@$(PY) tools/browser.py

clean:
	@rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis; find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
