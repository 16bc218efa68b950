# Everything a newcomer needs: `make demo` shows what rdmawire does, `make test` proves it.

PYTHON_MODULES := rdmawire layers tests tools
BIN := .venv/bin

.PHONY: help demo test check unit lowest docs bench plots fuzz mutants captures clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/installed  ## install, then dissect and verify a real capture
	@tools/demo

test: .venv/installed-dev .venv/packages check unit lowest docs  ## everything: style, types, floors, tests, docs
	@echo "make test: all passed"

check: .venv/installed-dev  ## style, types and floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: .venv/installed-dev .venv/packages  ## the tests alone
	$(BIN)/python -m pytest -n auto $(PYTEST_ARGS)

lowest: .venv-lowest/installed  ## a smoke test with the lowest library versions that are declared
	.venv-lowest/bin/python -m tools.lowest --check
	.venv-lowest/bin/python -m pytest -q -p no:cacheprovider tests/project/test_smoke.py

docs: .venv/installed-dev  ## the documentation site, into site/
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet

bench: .venv/installed-dev  ## figures and ratios, measured here and now
	$(BIN)/python -m tools.bench

plots: .venv/installed-dev  ## what the plots of the documentation show, measured anew
	$(BIN)/python -m tools.plots

fuzz: .venv/installed-dev  ## ten minutes of hostile bytes
	$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/pip install --quiet --editable '.[fuzz]'
	$(BIN)/python -m tools.fuzz --minutes $(or $(MINUTES),10)

mutants: .venv/installed-dev  ## ten minutes of small faults in the code, for the tests to find
	$(BIN)/python -m tools.mutants --minutes $(or $(MINUTES),10) --seed $(or $(SEED),0)

captures: .venv/installed-dev  ## make the generated captures anew
	$(BIN)/python -m tools.make_captures

.venv/installed: pyproject.toml tools/install
	@tools/install run

.venv/installed-dev: pyproject.toml tools/install
	@tools/install dev

.venv/packages: tools/install
	@tools/install packages

.venv-lowest/installed: .venv/installed-dev pyproject.toml tools/install tools/lowest.py
	@tools/install lowest

clean:  ## forget what was installed and built
	rm -rf .venv .venv-lowest build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
