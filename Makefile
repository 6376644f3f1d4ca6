# Two commands do all the set-up: `make run` and `make test`. The rest are their parts and the slow suites.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= auto
SEEDS ?= 5000
ROUNDS ?= 3

.PHONY: run test test-slow lint bench soak interop clean

run: $(STAMP)
	rm -rf data/demo
	$(BIN)/millstream demo --data-dir data/demo

# The fast tier: lint, then every test that is not slow.
test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --durations 25

# The rest: slow tests, and tests of examples and seeds at their whole size.
test-slow: $(STAMP)
	MILLSTREAM_TIER=slow $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --durations 25 \
		-m '(slow or sized) and not soak and not interop'

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.storage
	$(BIN)/python -m benchmarks.kafka --rounds $(ROUNDS)
	$(BIN)/python -m benchmarks.doors --rounds $(ROUNDS)
	$(BIN)/python -m benchmarks.spark --rounds $(ROUNDS)

soak: $(STAMP)
	MILLSTREAM_SOAK_SEEDS=$(SEEDS) $(BIN)/python -m pytest -n $(WORKERS) --timeout 7200 -m soak tests

interop: $(STAMP)
	$(BIN)/python -m pytest --timeout 600 -m interop tests/interop tests/spark

clean:
	rm -rf $(VENV) data dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Millstream needs Python 3.11 or newer, this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 test")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@
