# `make demo` shows what rdmawire does, `make test` runs all checks and tests.

PYTHON_MODULES := rdmawire layers tests tools
BIN := .venv/bin

# Tests start many commands, which import compiled modules in a quarter of the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test slow check unit lowest docs bench acceptance plots fuzz mutants captures clean

help:  ## list these commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/installed  ## install, then dissect and verify a real capture
	@tools/demo

test: .venv/installed-dev .venv/packages check unit docs  ## every class of check, in ten minutes: style, types, imports, tests, documentation
	@echo "make test: all passed"

slow: .venv/installed-dev .venv/packages $(if $(TESTS),,lowest)  ## what takes longer, before a release: slow tests, more examples, lowest versions, mutants (TESTS="FILE ...")
	$(BIN)/python -m pytest -n auto --hypothesis-profile=slow -m $(if $(TESTS),slow,"slow or hypothesis") $(TESTS) $(PYTEST_ARGS)
	$(if $(TESTS),,$(BIN)/python -m tools.mutants --count 60 --minutes 60)

check: .venv/installed-dev  ## check style, types and imports between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: .venv/installed-dev .venv/packages  ## run only the tests that are not slow
	$(BIN)/python -m pytest -n auto $(PYTEST_ARGS)

lowest: .venv-lowest/installed  ## run a smoke test with the lowest declared versions of libraries
	.venv-lowest/bin/python -m tools.lowest --check
	.venv-lowest/bin/python -m pytest -q -p no:cacheprovider tests/project/test_smoke.py

docs: .venv/installed-dev  ## build the documentation site in site/
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet

bench: .venv/installed-dev  ## run the benchmarks
	$(BIN)/python -m tools.bench

acceptance: .venv/installed-dev  ## run unmodified programs on emulated devices (ONLY=perftest, NCCL=libnccl.so.2, SOURCES=folder, PYTHON=venv/bin/python)
	$(BIN)/python -m tools.acceptance --write $(if $(ONLY),--only $(ONLY)) $(if $(NCCL),--nccl $(NCCL)) $(if $(SOURCES),--sources $(SOURCES)) $(if $(PYTHON),--python $(PYTHON))

plots: .venv/installed-dev  ## measure the data of the charts in the documentation
	$(BIN)/python -m tools.plots

fuzz: .venv/installed-dev  ## fuzz the parsers for ten minutes (MINUTES=10)
	$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/pip install --quiet --editable '.[fuzz]'
	$(BIN)/python -m tools.fuzz --minutes $(or $(MINUTES),10)

mutants: .venv/installed-dev  ## change code in small ways for ten minutes, and list changes that no test detects
	$(BIN)/python -m tools.mutants --minutes $(or $(MINUTES),10) --seed $(or $(SEED),0)

captures: .venv/installed-dev  ## generate the captures
	$(BIN)/python -m tools.make_captures

.venv/installed: pyproject.toml tools/install
	@tools/install run

.venv/installed-dev: pyproject.toml tools/install
	@tools/install dev

.venv/packages: tools/install
	@tools/install packages

.venv-lowest/installed: .venv/installed-dev pyproject.toml tools/install tools/lowest.py
	@tools/install lowest

clean:  ## remove everything that was installed and built
	rm -rf .venv .venv-lowest build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
