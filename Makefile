# Two commands are enough: `make demo` does the main job, `make test` runs every check.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help demo test acceptance faults docs format lock clean
help:
	@echo "make demo        install, then print Table 1 of the paper (chains 10 and 30, 20 seeds) into demo/"
	@echo "make test        install with test tools, then ruff, mypy and pytest"
	@echo "make acceptance  install, then compare fresh seeds of the learners with 200 kept ones (minutes)"
	@echo "make faults      install, then break runs on purpose (about an hour); the table goes to docs/faults.md"
	@echo "make docs        install, then build the documentation into site/"
	@echo "make lock        renew requirements.lock and requirements-demo.lock (hash-pinned, no index address)"
	@echo "make clean       remove the environment and caches"

# A stamp file per set of packages: the second call of a target installs nothing. The demo has what users need; the
# developers' set holds the same packages, in the same versions, and their tools.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tenuto needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo: requirements-demo.lock
$(VENV)/installed: requirements.lock
$(VENV)/demo $(VENV)/installed: pyproject.toml | $(BIN)/python
	$(PIP) --require-hashes -r $(filter %.lock,$^)
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(VENV)/demo
	$(BIN)/tenuto reproduce chain --parts main --lengths 10 30 --seeds 20 --out demo

test: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

acceptance: $(VENV)/installed
	$(BIN)/python findings/acceptance.py

faults: $(VENV)/installed
	$(BIN)/python findings/faults --out results/findings/faults.json --page docs/faults.md

docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # not --quiet: it would hide warnings from --strict too
	@echo "documentation: site/index.html"

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

EXPORT := $(PYTHON) -m uv export --frozen --no-emit-project --no-header --no-annotate --format requirements-txt
lock:
	$(PYTHON) -m uv lock --upgrade
	$(EXPORT) --extra plots --group build > requirements-demo.lock
	$(EXPORT) --extra test > requirements.lock

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
