# Everything a fresh machine needs: Python 3.11 or newer, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH := .venv-bench
# One BLAS thread per test process: they do not fight over the cores. Bytecode is kept, also where the environment says
# otherwise: tests start some 150 processes, and each would read the source anew.
SINGLE := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
# Processes of tests: more than two cores, since tests of fleets and clusters wait for a good part of their time.
WORKERS ?= 3
PYTEST := $(SINGLE) $(BIN)/python -m pytest -n $(WORKERS)

# The type checker takes one core, and what is compiled for the tests the other.
MAKEFLAGS += --jobs=2

.PHONY: help demo docs examples figures picture test test-skipped test-shuffled test-long test-cpus test-cpus-short lint types unit loops unit-moments dist chaos soak bench lock clean

help:
	@echo "make demo   train a fleet on the paper's synthetic field: a table and a picture"
	@echo "make docs   the documentation, into docs/_build/html: open index.html there, no network needed"
	@echo "make figures  the figures of the documentation"
	@echo "make picture  docs/page.png, the page of the five example boats (needs Chromium)"
	@echo "make examples  the worked examples of the documentation at full size: their figures and numbers"
	@echo "make test   lint, types, all tests and doctests but the long ones"
	@echo "make test-skipped  what the last make test left out, once the browser or iptables is there"
	@echo "make test-shuffled SEED=1  all tests in a random order"
	@echo "make test-long  the long tests: the same properties on more graphs, sizes and seeds"
	@echo "make test-cpus  the numerical tests with the arithmetic of other processors (about 20 minutes)"
	@echo "make chaos  100 fleets of processes with random faults (about an hour; with root and iptables also cut links)"
	@echo "make soak   a day of data for six processes in 24 minutes: every answer checked, nothing may grow; also KEEP=summary"
	@echo "make bench  FleetGP against scikit-learn, GPyTorch, GPBoost, JAX and libKriging: docs/benchmarks.md (about 80 minutes)"
	@echo "make dist   the source distribution and the wheel, checked, in dist/"
	@echo "make lock   renew the exact versions in requirements.lock"

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "FleetGP needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/fleetgp demo

# What the pages show: pictures of how methods work, and a figure and a few numbers for each choice of a model.
figures: $(STAMP)
	$(SINGLE) $(BIN)/python docs/figures/draw.py
	$(SINGLE) $(BIN)/python docs/figures/models.py

examples: $(STAMP)
	$(SINGLE) $(BIN)/python docs/examples/renew.py

docs: $(STAMP)
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "docs/_build/html/index.html"

# The page as README.md shows it, from the test that tries it; without a browser it says so and leaves the picture.
picture: $(STAMP)
	FLEETGP_SCREENSHOTS=screenshots $(SINGLE) $(BIN)/python -m pytest tests/page/test_running.py -k lives -p no:cacheprovider
	cp screenshots/running.png docs/page.png

test: lint types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache

# Also of the code that users read: the Python blocks of README.md and of the pages, a file each.
types: $(STAMP)
	$(BIN)/mypy
	rm -rf build/pages
	$(BIN)/python -m tests.docs.pages build/pages
	$(BIN)/mypy build/pages/*.py

unit: $(STAMP) loops
	$(PYTEST) --durations=25 --list-skipped=build

# What the last `make test` left out because a program was absent; what is still left out remains in the list.
test-skipped: $(STAMP)
	if [ -s build/skipped.txt ]; then $(PYTEST) --list-skipped=build @build/skipped.txt; else echo "nothing was skipped"; fi

# All tests in random order: `make test-shuffled SEED=2`.
SEED ?= 1
test-shuffled: $(STAMP) loops
	$(PYTEST) --shuffle=$(SEED)

# What all processes of the tests need, compiled by one of them.
loops: $(STAMP)
	$(SINGLE) $(BIN)/python -m tests.compiled_loops

# What only repeats a proof: the same property on more sizes, graphs or seeds, and on random examples that are new.
test-long: $(STAMP)
	$(PYTEST) --durations=25 -m "long or hypothesis" --hypothesis-profile=explore

# The numerical tests as other processors compute, with one BLAS thread and with two.
test-cpus: $(STAMP)
	$(BIN)/python -m tests.cpus

test-cpus-short: $(STAMP)
	$(BIN)/python -m tests.cpus --short

# The tests of training and prediction again, with the moments engine wherever it is certified.
unit-moments: $(STAMP)
	$(PYTEST) --engine=moments tests/training tests/prediction tests/reproduction/test_training.py tests/fleet/test_hosting.py

# What `twine upload` takes. The tests install this wheel with every extra alone (tests/packaging).
dist: $(STAMP)
	$(BIN)/python -m tests.packaging.distribution dist

# Real processes, killed, frozen, cut off, without room on their disks: random trials, and what must be true after each.
chaos: $(STAMP)
	$(SINGLE) $(BIN)/python -m tests.chaos --trials 100

# Rows that expire, members that come and go. KEEP=summary: what is forgotten stays in groups, and answers are by dec-summary.
KEEP ?= nothing
soak: $(STAMP)
	$(SINGLE) $(BIN)/python -m tests.soak --minutes 24 --keep $(KEEP)

# The peers have an environment of their own.
$(BENCH)/.installed: benchmarks/requirements.txt pyproject.toml
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/requirements.txt --editable ".[cli,cluster,data,fast,fleet]"
	touch $@

bench: $(BENCH)/.installed
	OPENBLAS_NUM_THREADS=2 OMP_NUM_THREADS=2 $(BENCH)/bin/python -m benchmarks $(SECTIONS)

lock: $(STAMP)
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --extra dev --strip-extras --unsafe-package fleetgp --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-annotate --upgrade --output-file requirements.lock pyproject.toml
	sed -i '/^#/d;/^$$/d' requirements.lock

clean:
	rm -rf screenshots $(VENV) $(BENCH) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output reproduction-output docs/_build build/pages
