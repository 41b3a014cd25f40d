# `make` alone lists what there is.

# Any Python 3.11 or newer that really runs (a shim may not): it then finds the one for the environment.
ifndef PYTHON
PYTHON := $(firstword $(foreach python,python3.11 python3.12 python3.13 python3.14 python3, \
	$(shell $(python) -c 'import sys; sys.version_info >= (3, 11) and print("$(python)")' 2>/dev/null)))
endif
ifeq ($(strip $(PYTHON)),)
$(error Python 3.11 or newer is needed)
endif

PY := .venv/bin/python
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))

# For `make test`, for example: make test DB="sqlite mariadb" ARGS="-k gravestone"
DB ?=
ARGS ?=

.PHONY: help
help:
	@echo "make demo    watch orders go through their workflows, on SQLite"
	@echo "make test    the suite on SQLite and PostgreSQL, with the oldest Python and Django"
	@echo "             (DB=\"sqlite mariadb\" chooses databases, ARGS=\"-k word\" goes to pytest)"
	@echo "make test-all  the same on every database, and with the newest Python and Django too"
	@echo "make quick   the suite on SQLite alone, without Redis and RabbitMQ"
	@echo "make lint    ruff, mypy, the layers, the migrations"
	@echo "make docs    the documentation, in docs/_build/html"
	@echo "make bench   the benchmarks"
	@echo "make venv    everything for work on the package, in .venv"
	@echo "make clean   remove what the others made"

# In CI, as root on Debian, this installs servers; anywhere else it does nothing.
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
