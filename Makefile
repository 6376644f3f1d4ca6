# Two commands do all the set-up: `make run` and `make test`. The rest are their parts and the slow suites.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUN_STAMP := $(VENV)/.installed-for-run
LINT_LOG := $(VENV)/lint.log
WORKERS ?= auto
SEEDS ?= 5000
ROUNDS ?= 3
# The tests start hundreds of processes: without cached bytecode each one compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-slow lint fmt coverage bench bench-before soak interop docs pictures dist clean

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1\t/' | expand -t 18

run: $(RUN_STAMP)  ## Install, start a broker and show the main job end to end.
	rm -rf data/demo
	$(BIN)/millstream demo --data-dir data/demo

test: $(STAMP)  ## Install, then lint beside every test that is not slow.
	@{ $(MAKE) --no-print-directory lint > $(LINT_LOG) 2>&1; lint=$$?; echo; cat $(LINT_LOG); exit $$lint; } & \
	lint=$$!; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --durations 25; tests=$$?; \
	wait $$lint || { echo "make lint failed: its report is above and in $(LINT_LOG)"; exit 1; }; \
	exit $$tests

test-slow: $(STAMP)  ## Run the slow tests, and examples and seeds at their whole size.
	TESTS_TIER=slow $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --durations 25 \
		-m '(slow or sized) and not soak and not interop'

lint: $(STAMP)  ## Check format, style, types and import contracts.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini --cache-dir .mypy_cache/tests tests benchmarks
	$(BIN)/lint-imports

fmt: $(STAMP)  ## Format the code and mend what can be mended.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

coverage: $(STAMP)  ## Measure which lines the fast tests run.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'coverage>=7.10'
	rm -f .coverage .coverage.*
	@# A tracer imports modules and takes time: tests of both may fail here. make test is the judge.
	-$(BIN)/python -m coverage run -m pytest -n $(WORKERS) --dist loadfile
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage json --quiet -o .coverage.json
	$(BIN)/python -m benchmarks.coverage .coverage.json

bench: $(STAMP)  ## Measure, beside Kafka and JetStream where they can be had.
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.storage
	$(BIN)/python -m benchmarks.index
	$(BIN)/python -m benchmarks.kafka --rounds $(ROUNDS)
	$(BIN)/python -m benchmarks.plot
	$(BIN)/python -m benchmarks.transactions --rounds $(ROUNDS)
	$(BIN)/python -m benchmarks.protocols --rounds $(ROUNDS)
	$(BIN)/python -m benchmarks.http
	$(BIN)/python -m benchmarks.schemas
	$(BIN)/python -m benchmarks.security
	$(BIN)/python -m benchmarks.audit
	$(BIN)/python -m benchmarks.console
	$(BIN)/python -m benchmarks.spark --rounds $(ROUNDS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check matplotlib
	$(BIN)/python -m benchmarks.growth

bench-before: $(STAMP)  ## Measure beside an earlier commit, in turns (BEFORE=checkout).
	$(BIN)/python -m benchmarks.kafka --rounds $(ROUNDS) --before $(BEFORE)

soak: $(STAMP)  ## Run thousands of simulated lives and long fault tests (SEEDS=n).
	MILLSTREAM_SOAK_SEEDS=$(SEEDS) $(BIN)/python -m pytest -n $(WORKERS) --timeout 7200 -m soak tests

interop: $(STAMP)  ## Run the clients of other languages: Java, Go, Node, kcat, Spark clusters.
	$(BIN)/python -m pytest --timeout 600 -m interop tests/interop tests/spark

docs: $(STAMP)  ## Build the site into dist/site; a broken link is an error.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'mkdocs-material>=9.5,<10'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

pictures: $(STAMP)  ## Make the pictures of the documents anew, from the real commands.
	$(BIN)/python -m tools.pictures

dist: $(STAMP)  ## Build the wheel and the source archive into dist/, and check them.
	rm -rf dist/*.whl dist/*.tar.gz
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'build>=1.2' 'twine>=5'
	$(BIN)/python -m build --quiet
	$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz

clean:  ## Remove everything that was installed or made.
	rm -rf $(VENV) data dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# `make run` installs what it runs; `make test` adds the rest to the same environment.
$(RUN_STAMP): EXTRAS := explore,pipelines
$(RUN_STAMP): pyproject.toml | $(BIN)/python
	$(install)
	touch $@

$(STAMP): EXTRAS := dev
$(STAMP): pyproject.toml | $(BIN)/python
	$(install)
	touch $@ $(RUN_STAMP)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Millstream needs Python 3.11 or newer, this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 test")'
	$(PYTHON) -m venv $(VENV)

# One line for each package that is downloaded or built: pip's own report has five times as many.
# The exit code of a pipe is that of its last command, which therefore passes on pip's.
define install
@echo "installing millstream[$(EXTRAS)] into $(VENV), which takes a minute or two"
@{ PYTHONUNBUFFERED=1 $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off \
	--editable '.[$(EXTRAS)]' || echo "pip failed"; } | { status=0; while read -r line; do case "$$line" in \
	"pip failed") status=1;; \
	Downloading*|"Using cached"*|"Building wheel"*|Installing*) printf '  %.90s\n' "$$line";; \
	esac; done; exit $$status; }
endef
