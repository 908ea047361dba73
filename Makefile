# Everything builds its own virtual environment; Python 3.11 and make are all that is needed.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
STAMP := $(VENV)/.installed

.PHONY: demo test lint format bench docs test-spark test-stress clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(RUN)python -m pip install --quiet --no-deps --editable examples/ldpsql-coin
	touch $(STAMP)

demo: $(STAMP)  ## perturb and estimate the flights that left New York in 2013; writes ldpsql-demo.html
	$(RUN)ldpsql demo

test: $(STAMP)  ## all tests
	$(RUN)python -m pytest

lint: $(STAMP)  ## style and types
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy

format: $(STAMP)  ## let ruff arrange the code
	$(RUN)ruff check --fix-only --quiet .
	$(RUN)ruff format --quiet .

docs: $(STAMP)  ## write the tables of README.md anew from the registry
	$(RUN)python -m tests.readme

bench: $(STAMP)  ## speed, as ratios against the plain engine in the same run
	$(RUN)python -m benchmarks

test-spark: $(STAMP)  ## the tests that need Spark: installs pyspark, and Java where there is none
	command -v java >/dev/null || { apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless >/dev/null; }
	$(RUN)python -m pip install --quiet --constraint constraints.txt --editable '.[spark]'
	$(RUN)python -m pytest tests/spark

test-stress: $(STAMP)  ## kill -9 at random moments, a few times; python -m tests.stress.bulk_kill does it 50 times
	$(RUN)python -m tests.stress.bulk_kill 6

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
