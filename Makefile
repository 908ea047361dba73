# Everything builds its own virtual environment; Python 3.11 and make are all that is needed.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
STAMP := $(VENV)/.installed

DBT := .venv-dbt
DBT_STAMP := $(DBT)/.installed

LOWEST := .venv-lowest
LOWEST_STAMP := $(LOWEST)/.installed

SPARK := .venv-spark
SPARK_STAMP := $(SPARK)/.installed

WAREHOUSES := .venv-warehouses
WAREHOUSES_STAMP := $(WAREHOUSES)/.installed

BENCH := .venv-bench
BENCH_STAMP := $(BENCH)/.installed

SITE := .venv-site
SITE_STAMP := $(SITE)/.installed

.PHONY: sanitize test-python demo papers mutants bench-check test test-slow test-dbt test-browser test-clients test-lowest test-stress test-spark test-postgres test-orchestrators debian environments lint format bench docs site release-check clean

# Modules are compiled when they are imported: most of a package never is. An editable installation compiles the kernels in C.
INSTALLED := pyproject.toml constraints.txt
$(STAMP): $(INSTALLED) hatch_build.py $(wildcard ldpsql/channels/native/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	$(RUN)python -m pip install --quiet --no-compile --no-deps --editable examples/ldpsql-coin
	touch $(STAMP)

# $(call beside,FOLDER,ARGUMENTS): an environment that sees the packages of .venv, and holds only what differs or is missing there.
define beside
	$(PYTHON) -m venv --clear --without-pip $(1)
	$(RUN)python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' > $(1)/beside.pth
	mv $(1)/beside.pth $(1)/lib/python*/site-packages/
	$(RUN)python -m pip --python $(1)/bin/python install --quiet --no-compile $(2)
endef

demo: $(STAMP)  ## perturb and estimate the flights that left New York in 2013; writes ldpsql-demo.html
	$(RUN)ldpsql demo

# The tests start many processes, which would compile all modules again if nothing may be written beside them.
export PYTHONDONTWRITEBYTECODE :=

# $(call apt,PACKAGES): install packages of Debian's.
apt = { apt-get update -qq && apt-get install -y -qq $(1) >/dev/null; }

LONG := --override-ini faulthandler_timeout=3600  # many builds or kills in a test: no other takes 300 s

PAPERS ?=
papers: $(STAMP)  ## the figures of four papers again, quickly; in full: make papers PAPERS=--full
	$(RUN)python examples/papers $(PAPERS)

test: $(STAMP)  ## the tests, on all cores; .ci/run runs the slower ones too
	$(RUN)python -m pytest -n auto --dist worksteal --durations 8

release-check: $(STAMP)  ## build twice, compare the bytes, and write dist/ with a bill of materials; says what keeps it from a release
	$(RUN)python -m tests.release dist

WORKERS ?= auto
test-slow: $(STAMP)  ## the tests that take most of the time: killed processes, full disks, many draws
	$(RUN)python -m pytest -n $(WORKERS) --dist worksteal -m slow

$(DBT_STAMP): $(INSTALLED) constraints-dbt.txt | $(STAMP)
	$(call beside,$(DBT),--no-deps --requirement constraints-dbt.txt --editable .)
	touch $(DBT_STAMP)

test-dbt: $(DBT_STAMP)  ## build examples/dbt with real dbt-core, dbt-duckdb and dbt-postgres, which have an environment of their own
	command -v psql >/dev/null || $(call apt,postgresql) || true
	$(DBT)/bin/python -m pytest $(LONG) tests/test_dbt.py

test-browser: $(STAMP) site  ## look at the pages and the site in a real browser: Debian's chromium
	$(RUN)python -m pytest -m browser tests/test_browser.py

CLIENTS ?= 5000
test-clients: $(STAMP)  ## modules for JavaScript in Node and chromium: installs Node; in full: make test-clients CLIENTS=1000000
	command -v node >/dev/null || $(call apt,nodejs) || true
	$(RUN)python -m tests.stress.clients --words $(CLIENTS)

$(LOWEST_STAMP): $(INSTALLED) tests/lowest.py | $(STAMP)
	$(PYTHON) -m tests.lowest > $(VENV)/lowest.txt
	$(call beside,$(LOWEST),--constraint $(VENV)/lowest.txt --editable '.[dev]')
	touch $(LOWEST_STAMP)

test-lowest: $(LOWEST_STAMP)  ## tests that meet every dependency, with the oldest versions that are allowed; all: make test-lowest MEETING=tests
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(or $(MEETING),$$($(RUN)python -m tests.lowest --tests))

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
	LDPSQL_NATIVE=0 $(RUN)python -m pytest -n $(WORKERS) tests/test_randomness.py tests/test_channels.py tests/test_structures.py tests/test_large_domains.py tests/test_sql.py

CALLS ?= 100
SANITIZE = $(CC) -std=c11 -O1 -g -pthread -fno-sanitize-recover=all -Ildpsql/channels/native tests/stress/kernels.c ldpsql/channels/native/*.c -lm
sanitize:  ## the kernels under the sanitizers of addresses, undefined behaviour and threads: needs a C compiler
	mkdir -p build
	$(SANITIZE) -fsanitize=address,undefined -o build/kernels-address && build/kernels-address $(CALLS)
	$(SANITIZE) -fsanitize=thread -o build/kernels-thread && build/kernels-thread $(CALLS)

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

$(SITE_STAMP): $(INSTALLED) | $(STAMP)
	$(call beside,$(SITE),--constraint constraints.txt --editable '.[site]')
	touch $(SITE_STAMP)

REPOSITORY ?= $(shell git config --get remote.origin.url | sed -n 's|^https://\([^/@]*@\)\?|https://|p')
site: $(SITE_STAMP)  ## build the documentation site in site/, with a link to the repository; a broken link fails
	trap 'rm .site.toml' EXIT; sed 's|^\[project\]|&\nrepo_url = "$(REPOSITORY)"|' zensical.toml > .site.toml; \
	$(SITE)/bin/zensical build --clean --strict --config-file .site.toml

$(BENCH_STAMP): $(INSTALLED)
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[peers,report]' pytest
	touch $(BENCH_STAMP)

bench-check: $(STAMP)  ## short figures of every benchmark against their record; to record them: make bench-check BENCHMARKS=--record
	$(RUN)python -m benchmarks --check $(BENCHMARKS)

bench: $(BENCH_STAMP)  ## speed, as ratios against the plain engine and the published libraries in the same run
	$(BENCH)/bin/python -m benchmarks $(BENCHMARKS)

$(SPARK_STAMP): $(INSTALLED) | $(STAMP)
	$(call beside,$(SPARK),--constraint constraints.txt --editable '.[spark]')
	touch $(SPARK_STAMP)

test-spark: $(SPARK_STAMP)  ## the tests that need Spark: installs pyspark, and Java where there is none
	command -v java >/dev/null || $(call apt,openjdk-17-jre-headless)
	$(SPARK)/bin/python -m pytest tests/spark

$(WAREHOUSES_STAMP): $(INSTALLED) | $(STAMP)
	$(call beside,$(WAREHOUSES),--constraint constraints.txt --editable '.[warehouses]')
	touch $(WAREHOUSES_STAMP)

ORCHESTRATORS := .venv-orchestrators
ORCHESTRATORS_STAMP := $(ORCHESTRATORS)/.installed

$(ORCHESTRATORS_STAMP): $(INSTALLED) | $(STAMP)
	$(call beside,$(ORCHESTRATORS),apache-airflow==3.3.2 dagster==1.13.29 'dlt[duckdb]==1.31.0' --editable .)
	touch $(ORCHESTRATORS_STAMP)

test-orchestrators: $(ORCHESTRATORS_STAMP)  ## the recipes for Airflow, Dagster and dlt: .ci/run leaves them out, as they take minutes
	$(ORCHESTRATORS)/bin/python -m pytest $(LONG) tests/test_recipes.py

debian:  # what later targets of .ci/run need, while pip fills the first environment: one apt-get locks out others
	{ command -v psql && command -v node && command -v java; } >/dev/null || $(call apt,nodejs openjdk-17-jre-headless postgresql) || true

environments: debian $(DBT_STAMP) $(LOWEST_STAMP) $(SPARK_STAMP) $(SITE_STAMP) $(WAREHOUSES_STAMP)

test-postgres: $(WAREHOUSES_STAMP)  ## PostgreSQL, ClickHouse and DataFusion
	command -v psql >/dev/null || $(call apt,postgresql) || true
	$(WAREHOUSES)/bin/python -m pytest $(LONG) tests/postgres

clean:
	rm -rf $(VENV) $(DBT) $(LOWEST) $(BENCH) $(SITE) $(SPARK) $(WAREHOUSES) $(ORCHESTRATORS) site .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
