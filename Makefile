# `make` without a target lists the targets.

# Use any Python 3.11 or newer that runs (a shim may not). It finds the interpreter for the virtual environment.
ifndef PYTHON
PYTHON := $(firstword $(foreach python,python3.11 python3.12 python3.13 python3.14 python3, \
	$(shell $(python) -c 'import sys; sys.version_info >= (3, 11) and print("$(python)")' 2>/dev/null)))
endif
ifeq ($(strip $(PYTHON)),)
$(error Python 3.11 or newer is required)
endif

PY := .venv/bin/python
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))

# For `make test`, for example: make test DB="sqlite mariadb" ARGS="-k gravestone"
DB ?=
ARGS ?=

.PHONY: help
help:
	@echo "make demo      run the example shop on SQLite and watch its workflows"
	@echo "make test      run the test suite on SQLite and PostgreSQL, with the oldest Python and Django"
	@echo "               (DB=\"sqlite mariadb\" chooses databases, ARGS=\"-k word\" goes to pytest)"
	@echo "make test-all  run it on every database, and with the newest Python and Django too"
	@echo "make quick     run it on SQLite alone, without Redis and RabbitMQ"
	@echo "make lint      run ruff and mypy, check the import layers and the migrations"
	@echo "make docs      build the documentation in docs/_build/html"
	@echo "make bench     run the benchmarks"
	@echo "make venv      install everything that you need to work on the package, in .venv"
	@echo "make clean     delete everything that the other targets created"

# In CI, as root on Debian, this installs database servers. Elsewhere it does nothing.
.PHONY: system
system:
	@$(PYTHON) -m tests.servers.install

.PHONY: venv
venv: system
	@$(PYTHON) -m tests.environments demo test lint docs

.PHONY: demo
demo: system
	@$(PYTHON) -m tests.environments demo
	@$(PY) -m example_project.demo

.PHONY: test
test: system
	@$(PYTHON) -m tests.environments demo test
	@$(PY) -m tests.run $(if $(DB),--databases $(DB)) -- $(ARGS)

.PHONY: test-all
test-all:
	@GENEVA_TEST_ALL=1 $(MAKE) --no-print-directory test

.PHONY: quick
quick: system
	@$(PYTHON) -m tests.environments demo test
	@$(PY) -m tests.run --quick --databases sqlite -- $(ARGS)

.PHONY: lint
lint: system
	@$(PYTHON) -m tests.environments demo test lint
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	DJANGO_SETTINGS_MODULE=tests.settings $(PY) -m django makemigrations --check --dry-run

.PHONY: docs
docs: system
	@$(PYTHON) -m tests.environments demo docs
	$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

.PHONY: bench
bench: system
	@$(PYTHON) -m tests.environments demo test
	@$(PY) -m benchmarks.engine
	@$(PY) -m benchmarks.checkpoints
	@$(PY) -m benchmarks.dispatchers

.PHONY: clean
clean:
	rm -rf example_project/*.sqlite3* example_project/*.log
	rm -rf .venv .venv-newest .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache docs/_build build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
