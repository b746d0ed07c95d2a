# make demo: set everything up and see it work. make test: set everything up and run all checks.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := demo
.PHONY: demo test lint house bench coverage studies instrument constraints clean

demo: $(VENV)/installed
	$(BIN)/counterfoil demo

test: $(VENV)/installed-tests lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(VENV)/installed-tests
	$(BIN)/ruff check src tests bench examples tools
	$(BIN)/ruff format --check src tests bench examples tools
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/words.py
	$(BIN)/python tools/house.py

house:
	$(PYTHON) tools/house.py

bench: $(VENV)/installed-tests
	$(BIN)/python -m bench.engine
	$(BIN)/python -m bench.report
	$(BIN)/python -m bench.review_load

coverage: $(VENV)/installed-tests
	$(BIN)/python -m bench.coverage

studies: $(VENV)/installed
	$(BIN)/counterfoil study all

instrument: $(VENV)/installed-tests
	$(BIN)/python -m bench.instrument

constraints: $(VENV)/installed-tests
	$(BIN)/pip freeze --exclude-editable | grep -v ' @ ' > constraints.txt

$(VENV)/created:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	touch $@

$(VENV)/installed: $(VENV)/created pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/installed-tests: $(VENV)/created pyproject.toml constraints.txt $(wildcard tests/plugin/*.toml)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test,dev]' --editable tests/plugin
	touch $(VENV)/installed $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
