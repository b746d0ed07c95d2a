# make demo: set everything up and see it work. make test: set everything up and run all checks.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := demo
# Tests marked `rounding` must pass however a CPU rounds: they run again with older instruction sets.
BASELINE := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 OPENBLAS_CORETYPE=Nehalem
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Haswell

.PHONY: demo test rounding wheels docs lint house bench coverage studies lab-check constraints clean

demo: $(VENV)/installed
	$(BIN)/counterfoil demo

test: $(VENV)/installed-tests lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup

rounding: $(VENV)/installed-tests
	$(BASELINE) $(BIN)/python -m pytest -n 2 --dist loadgroup -m rounding
	$(AVX2) $(BIN)/python -m pytest -n 2 --dist loadgroup -m rounding

docs: $(VENV)/installed-docs
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m sphinx --fail-on-warning --keep-going -q docs docs/_build/html

wheels: $(VENV)/installed-tests
	$(BIN)/python tools/wheels.py $(WHEELS)

lint: $(VENV)/installed-tests
	$(BIN)/ruff check src lab tests bench examples tools
	$(BIN)/ruff format --check src lab tests bench examples tools
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/words.py
	$(BIN)/python tools/house.py
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/zizmor --quiet --offline .github

house:
	$(PYTHON) tools/house.py

bench: $(VENV)/installed-tests
	$(BIN)/python -m bench.fmr_speed
	$(BIN)/python -m bench.web_load report
	$(BIN)/python -m bench.web_load review

coverage: $(VENV)/installed-tests
	$(BIN)/python -m bench.intervals populations

studies: $(VENV)/installed
	$(BIN)/counterfoil study all

lab-check: $(VENV)/installed-tests
	$(BIN)/python -m bench.lab fmr

constraints: $(VENV)/installed-tests
	$(BIN)/pip freeze --exclude-editable | grep -v ' @ ' > constraints.txt

$(VENV)/created:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	touch $@

$(VENV)/installed: $(VENV)/created pyproject.toml lab/pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[lab]' --editable lab
	touch $@

$(VENV)/installed-tests: $(VENV)/created pyproject.toml lab/pyproject.toml constraints.txt $(wildcard tests/plugin/*.toml)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test,dev,lab]' --editable lab --editable tests/plugin
	touch $(VENV)/installed $@

$(VENV)/installed-docs: $(VENV)/created pyproject.toml lab/pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs,lab]' --editable lab
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
