# Everything builds its own virtual environment; Python 3.11 and make are all that is needed.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
STAMP := $(VENV)/.installed

DBT := .venv-dbt
DBT_STAMP := $(DBT)/.installed

LOWEST := .venv-lowest
LOWEST_STAMP := $(LOWEST)/.installed

BENCH := .venv-bench
BENCH_STAMP := $(BENCH)/.installed

SITE := .venv-site
SITE_STAMP := $(SITE)/.installed

.PHONY: demo papers mutants bench-check test test-slow test-dbt test-browser test-clients test-lowest test-stress test-spark test-postgres lint format bench docs site clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(RUN)python -m pip install --quiet --no-deps --editable examples/ldpsql-coin
	touch $(STAMP)

demo: $(STAMP)  ## perturb and estimate the flights that left New York in 2013; writes ldpsql-demo.html
	$(RUN)ldpsql demo

# The tests start many processes, which compile all modules where nothing may be written beside them.
test test-slow test-lowest: export PYTHONDONTWRITEBYTECODE :=

PAPERS ?=
papers: $(STAMP)  ## the figures of four papers again, quickly; in full: make papers PAPERS=--full
	$(RUN)python examples/papers $(PAPERS)

test: $(STAMP)  ## the tests, on all cores; .ci/run runs the slower ones too
	$(RUN)python -m pytest -n auto --dist worksteal --durations 8

test-slow: $(STAMP)  ## the tests that take most of the time: killed processes, full disks, many draws
	$(RUN)python -m pytest -n auto --dist worksteal -m slow

$(DBT_STAMP): pyproject.toml constraints-dbt.txt
	$(PYTHON) -m venv $(DBT)
	$(DBT)/bin/python -m pip install --quiet --constraint constraints-dbt.txt --editable '.[dbt]' pytest pytest-timeout
	touch $(DBT_STAMP)

test-dbt: $(DBT_STAMP)  ## build examples/dbt with real dbt-core and dbt-duckdb, which have an environment of their own
	$(DBT)/bin/python -m pytest tests/test_dbt.py

test-browser: $(STAMP)  ## look at the pages in a real browser: Debian's chromium
	$(RUN)python -m pytest -m browser tests/test_browser.py

CLIENTS ?= 5000
test-clients: $(STAMP)  ## modules for JavaScript in Node and chromium: installs Node; in full: make test-clients CLIENTS=1000000
	command -v node >/dev/null || { apt-get update -qq && apt-get install -y -qq nodejs >/dev/null; } || true
	$(RUN)python -m tests.stress.clients --words $(CLIENTS)

$(LOWEST_STAMP): pyproject.toml tests/lowest.py
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) -m tests.lowest > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --constraint $(LOWEST)/constraints.txt --editable '.[dev]'
	$(LOWEST)/bin/python -m pip install --quiet --no-deps --editable examples/ldpsql-coin
	touch $(LOWEST_STAMP)

test-lowest: $(LOWEST_STAMP)  ## the same tests with the oldest versions that are allowed
	$(LOWEST)/bin/python -m pytest -n auto --dist worksteal --durations 8

ROUNDS ?= 25
BULK ?= 6
BUILDS ?= 10
TABLES ?= 6
FUZZ ?= 20000
FLIPS ?= 200
REQUESTS ?= 100
test-stress: $(STAMP) $(DBT_STAMP)  ## kill -9, damage, nonsense and load; in full: make test-stress ROUNDS=1000 BULK=50 FUZZ=1000000 FLIPS=1500 REQUESTS=1000
	$(RUN)python -m tests.stress.kill --rounds $(ROUNDS)
	$(RUN)python -m tests.stress.bulk_kill $(BULK)
	$(RUN)python -m tests.stress.table_kill $(TABLES)
	$(DBT)/bin/python -m tests.stress.dbt_kill $(BUILDS)
	$(RUN)python -m tests.stress.damage --flips $(FLIPS)
	$(RUN)python -m tests.stress.service --requests $(REQUESTS)
	$(RUN)python -W ignore -m tests.stress.fuzz --count $(FUZZ) $(if $(SEED),--seed $(SEED))

test-python: $(STAMP)  ## draws and their statistics without the kernels in C
	LDPSQL_NATIVE=0 $(RUN)python -m pytest -n auto tests/test_randomness.py tests/test_channels.py tests/test_structures.py tests/test_large_domains.py tests/test_sql.py

MUTANTS ?=
mutants: $(STAMP) $(DBT_STAMP)  ## plant faults, each of which the tests must find; of changed files: make mutants MUTANTS=--changed
	$(RUN)python -m tests.mutants $(MUTANTS)

lint: $(STAMP)  ## style, types, and the order of rooms
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy
	$(RUN)lint-imports

format: $(STAMP)  ## let ruff arrange the code
	$(RUN)ruff check --fix-only --quiet .
	$(RUN)ruff format --quiet .

docs: $(STAMP)  ## write the pages of docs/reference from the registry
	$(RUN)python -m tests.reference

$(SITE_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[site]'
	touch $(SITE_STAMP)

site: $(SITE_STAMP)  ## build the documentation site in site/; a broken link fails
	$(SITE)/bin/zensical build --clean --strict

$(BENCH_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[peers,report]' pytest pytest-timeout
	touch $(BENCH_STAMP)

bench-check: $(STAMP)  ## short figures of every benchmark against their record; to record them: make bench-check BENCHMARKS=--record
	$(RUN)python -m benchmarks --check $(BENCHMARKS)

bench: $(BENCH_STAMP)  ## speed, as ratios against the plain engine and the published libraries in the same run
	$(BENCH)/bin/python -m benchmarks $(BENCHMARKS)

test-spark: $(STAMP)  ## the tests that need Spark: installs pyspark, and Java where there is none
	command -v java >/dev/null || { apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless >/dev/null; }
	$(RUN)python -m pip install --quiet --constraint constraints.txt --editable '.[spark]'
	$(RUN)python -m pytest tests/spark

test-postgres: $(STAMP)  ## exported SQL in PostgreSQL: installs Debian's where there is none
	command -v psql >/dev/null || { apt-get update -qq && apt-get install -y -qq postgresql >/dev/null; } || true
	$(RUN)python -m pytest tests/postgres

clean:
	rm -rf $(VENV) $(DBT) $(LOWEST) $(BENCH) $(SITE) site .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
