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
	@echo "make lock        renew requirements.lock (hash-pinned, no index address)"
	@echo "make clean       remove the environment and caches"

# A stamp file per set of packages: the second call of a target installs nothing.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tenuto needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: requirements.lock pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(VENV)/installed
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

lock:
	$(PYTHON) -m uv lock --upgrade
	$(PYTHON) -m uv export --frozen --no-emit-project --extra test --no-header --no-annotate --format requirements-txt > requirements.lock

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
