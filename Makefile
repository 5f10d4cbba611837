# Every target sets up what it needs in .venv, from a lock with hashes; a second call starts at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.run
DEV := $(VENV)/.dev
DOCS := $(VENV)/.docs
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --quiet --require-hashes

.PHONY: demo test test-all long check bench forecast-bench pictures scale keypool overhead gateway simulate chaos mutants sbom audit docs lock clean

demo: $(RUN)
	@$(BIN)/agentos demo

# Most tests wait for processes, so run three for every two cores.
PYTEST := PYTEST_XDIST_AUTO_NUM_WORKERS=$$(($$(nproc) * 3 / 2)) $(BIN)/python -m pytest

# The tests to run before every commit: about five minutes on two cores.
test: $(DEV) $(DOCS)
	@$(PYTEST)

# Everything that `make test` leaves out: slower variants, whole campaigns, the documented examples.
test-all: $(DEV) $(DOCS)
	@$(PYTEST) -m 'slow and not long'

# Tests that take minutes, then new random examples for every property-based test.
long: $(DEV)
	@$(BIN)/python -m pytest -m long
	@$(BIN)/python -m pytest --hypothesis-profile=fresh -m 'not long' tests/state_machines tests/fuzz tests/core tests/simulation

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(DEV)
	@$(BIN)/python -m bench.parallel --latency 1
	@$(BIN)/python -m bench.parallel --latency 4

# Ours beside what else people use for several keys; installs those, each in a folder of its own.
keypool: $(DEV)
	@$(BIN)/python -m bench.keypool

# What running side by side costs, beside GNU parallel, a process pool and snakemake (installed in a folder of its own).
overhead: $(DEV)
	@$(BIN)/python -m bench.overhead

# What --dry-run says beside what a run then takes, on the offline server.
forecast-bench: $(DEV)
	@$(BIN)/python -m bench.forecast

# The pictures of the README, from real runs; best on a quiet machine.
pictures: $(DEV)
	@$(BIN)/python docs/images/make_demo_svg.py
	@$(BIN)/python docs/images/make_timeline_svg.py

# Ten thousand items on one machine.
scale: $(DEV)
	@$(BIN)/python -m bench.scale

# Imagined lives with faults, from a fixed and a fresh seed; one again: make simulate SEED=...
simulate: $(DEV)
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED))

# What our gateway adds to a call, beside LiteLLM's proxy; installs that in a folder of its own.
gateway: $(DEV)
	@$(BIN)/python -m bench.gateway

# Kills and freezes at random, a kill in place of every durable call, power cuts, contention; one seed again, or less of
# it: make chaos CHAOS="--seed 71 --stride 6"
chaos: $(DEV)
	@$(BIN)/python -m tests.chaos $(CHAOS)

# Plants known bugs, one after the other: the campaign has to catch each.
mutants: $(DEV)
	@$(BIN)/python -m tests.chaos.mutants

# Every installed file against its record, and the bill of materials of what the lock names.
sbom: $(DEV)
	@$(BIN)/python -m tests.audits.sbom > docs/sbom.cdx.json
	@$(BIN)/python -m tests.audits.installed

audit: $(DEV)
	@$(BIN)/python -m tests.audits

# The documentation as a site in site; a dead link is an error.
docs: $(DOCS)
	@$(BIN)/properdocs build --quiet --config-file properdocs.yml
	@echo "Open site/index.html"

# Rewrites the locks after a change of the dependencies in pyproject.toml; needs uv on the PATH.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header pyproject.toml -o requirements/run.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --group dev -c requirements/run.txt pyproject.toml -o requirements/dev.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --group docs -c requirements/dev.txt -o requirements/docs.txt

clean:
	rm -rf $(VENV) site agentos-demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "agentos needs Python 3.11 or newer; found: $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 demo" >&2; exit 1; }
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python3 has no venv module: on Debian or Ubuntu, apt-get install python3-venv" >&2; exit 1; }

$(RUN): requirements/run.txt pyproject.toml | $(BIN)/python
	@echo "Installing the packages that agentos runs on ..."
	@$(PIP) -r requirements/run.txt
	@$(PIP) -r requirements/build.txt
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): requirements/dev.txt $(RUN)
	@echo "Installing the packages that the tests and checks need ..."
	@$(PIP) -r requirements/dev.txt
	@touch $@

$(DOCS): requirements/docs.txt | $(DEV)
	@echo "Installing the packages that build the documentation ..."
	@$(PIP) -r requirements/docs.txt
	@touch $@
