# Every target first installs what it needs into .venv, from lock files with hashes; the second call starts at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.run
DEV := $(VENV)/.dev
DOCS := $(VENV)/.docs
PIP := $(BIN)/python -m pip --disable-pip-version-check install --require-hashes --progress-bar off --root-user-action ignore

# $(call install,FILE,PURPOSE): installs the packages of a lock file and names each one as it is fetched, on one line.
define install
	@printf 'Installing what %s (%s):' '$(2)' "$$(grep -c '==' $(1))"
	@rm -f $(VENV)/.installed; \
	{ $(PIP) -r $(1) 2>&1 && touch $(VENV)/.installed; } | tee $(VENV)/install.log | while read -r word name rest; do \
		case $$word in Collecting) printf ' %s' "$${name%%[=[]*}";; Installing) printf ' ... unpacking';; esac; \
	done; echo; \
	test -e $(VENV)/.installed || { grep -v '^WARNING' $(VENV)/install.log | tail -n 20 >&2; exit 1; }
endef

.PHONY: fleet-servers fleet-demo fleet-chaos fleet-mutants fleet-bench demo test test-all test-portable test-macos long check check-macos bench forecast-bench pictures scale keypool overhead gateway agents recall simulate simulate-fleet chaos mutants sbom audit docs generate lock lowest newest langchain clean

demo: $(RUN)
	@$(BIN)/agentos demo

# Most tests wait for processes, so run three for every two cores.
PYTEST := PYTEST_XDIST_AUTO_NUM_WORKERS=$$(($$(getconf _NPROCESSORS_ONLN) * 3 / 2)) $(BIN)/python -m pytest

# The tests to run before every commit: about five minutes on two cores.
test: $(DEV) $(DOCS)
	@$(PYTEST)

# Everything that `make test` leaves out: slower variants, whole campaigns, the documented examples, the page in Chromium,
# the fleet with real servers.
test-all: $(DEV) $(DOCS) browser fleet-servers
	@$(PYTEST) -m 'slow and not long'

# The same tests without the calls that only Linux has: with what agentos uses on other systems instead.
test-portable: $(DEV) $(DOCS)
	@AGENTOS_PORTABLE=1 $(PYTEST)

# The tests that need nothing of Linux themselves, for other systems; untried there so far.
test-macos: $(DEV)
	@$(PYTEST) tests/contracts tests/control tests/core tests/engines tests/models tests/offline tests/outputs \
		tests/parallel tests/run tests/settings tests/simulation tests/state_machines tests/storage tests/workflows

# Installs Debian's Chromium, where it is missing and this user may, and axe-core into .venv; says what else to type.
browser: $(DEV)
	@$(BIN)/python -m tests.page.setup_browser

# Installs Debian's Postgres for the tests of the fleet, where it is missing and this user may; says what else to type.
fleet-servers: $(DEV)
	@$(BIN)/python -m tests.fleet.setup_servers

# A fleet on this machine: Postgres, Temporal, the gateway, two workers, a backlog; one worker is killed on the way.
fleet-demo: fleet-servers
	@$(BIN)/python -m tests.fleet.demo

# Two workers finish 100 items while 200 faults hit them, Postgres, Temporal and the gateway: about half an hour, most of it
# waiting. Repeat one seed, or run the short form: make fleet-chaos FLEET_CHAOS="--seed 16 --short"
fleet-chaos: fleet-servers
	@$(BIN)/python -m tests.fleet.chaos $(FLEET_CHAOS)

# Plants known bugs of a fleet one at a time; parts of its campaign have to catch every one.
fleet-mutants: fleet-servers
	@$(BIN)/python -m tests.fleet.chaos.mutants

# A fleet beside the local engine: takeover, cost of an item, events on the screen, the gateway under load. Quiet machine.
fleet-bench: fleet-servers
	@$(BIN)/python -m bench.fleet

# Tests that take minutes, then new random examples for every property-based test.
long: $(DEV)
	@$(BIN)/python -m pytest -m long
	@$(BIN)/python -m pytest --hypothesis-profile=fresh -m 'not long' tests/state_machines tests/fuzz tests/core tests/simulation

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Finds calls that do not exist on macOS, as far as the types of the standard library tell.
check-macos: $(DEV)
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin src

bench: $(DEV)
	@$(BIN)/python -m bench.parallel --latency 1
	@$(BIN)/python -m bench.parallel --latency 4

# The key pool compared with other libraries, each installed in a separate folder.
keypool: $(DEV)
	@$(BIN)/python -m bench.keypool.shape_run
	@$(BIN)/python -m bench.keypool.shape_http
	@$(BIN)/python -m bench.keypool

# The cost of running items in parallel, compared with GNU parallel, a process pool and snakemake.
overhead: $(DEV)
	@$(BIN)/python -m bench.overhead
	@$(BIN)/python -m bench.overhead.cpu

# The forecast of --dry-run compared with the run that follows, on the offline server.
forecast-bench: $(DEV)
	@$(BIN)/python -m bench.forecast

# Redraws the pictures in the README from real runs, and those of the key pool from simulated ones; use a quiet machine.
pictures: $(DEV)
	@$(BIN)/python docs/images/make_demo_svg.py
	@$(BIN)/python docs/images/make_timeline_svg.py
	@PYTHONPATH=. $(BIN)/python docs/images/make_limit_svgs.py

# Takes the pictures of the page: four views, light and dark, wide and phone, in screenshots/; two go to the README.
screenshots: browser
	@$(BIN)/python docs/images/make_page_png.py

# The page with 200 clients, slow and reconnecting ones among them, beside a run: what it costs the run.
page-bench: $(DEV)
	@$(BIN)/python -m bench.page

# Runs ten thousand items on one machine.
scale: $(DEV)
	@$(BIN)/python -m bench.scale

# Simulates thousands of runs and of lives of a fleet, with faults, from fixed and random seeds. Repeat one: SEED=... or FLEET_SEED=...
simulate: $(DEV)
	@$(if $(FLEET_SEED),,$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)))
	@$(if $(SEED),,$(BIN)/python -m tests.simulation.fleet $(if $(FLEET_SEED),--seed $(FLEET_SEED)))

# Simulates one large fleet: 1,000 workers, 10,000 keys, 1,000,000 items; SHARE=0.01 takes a hundredth of each.
simulate-fleet: $(DEV)
	@$(BIN)/python -m tests.simulation.fleet.scale $(if $(SHARE),--share $(SHARE))

# The latency that the gateway adds to a call, compared with LiteLLM's proxy.
gateway: $(DEV)
	@$(BIN)/python -m bench.gateway

# The coding agents themselves, from npm and PyPI, through the gateway to the offline server. About 4 GB in AGENTS.
AGENTS = .agents
agents: $(DEV)
	@tests/agents/install $(AGENTS)
	@AGENTS="$(abspath $(AGENTS))" $(BIN)/python -m pytest -m long tests/agents

# What a design gets to see, on real changes. RECORDS is a JSON list of changes, REPOSITORIES a folder with a git
# directory for each repository; both are described in bench/recall.py.
recall: $(DEV)
	@$(BIN)/python -m bench.recall $(RECORDS) $(REPOSITORIES) --scale 10000 50000

# Random kills and freezes, everything at once, replaced files, a kill at every durable system call, power cuts, contention.
# Repeat one seed, or run fewer steps: make chaos CHAOS="--seed 71 --stride 6"
chaos: $(DEV)
	@$(BIN)/python -m tests.chaos $(CHAOS)

# Plants known bugs one at a time; the chaos campaign has to catch every one.
mutants: $(DEV)
	@$(BIN)/python -m tests.chaos.mutants

# Writes the bill of materials (CycloneDX) of the runtime lock file and verifies every installed file.
sbom: $(DEV)
	@mkdir -p dist
	@$(BIN)/python -m tests.audits.sbom > dist/sbom.cdx.json
	@echo "Wrote dist/sbom.cdx.json"
	@$(BIN)/python -m tests.audits.installed

# Checks facts about the repository: security rules, names, and what the documentation says.
audit: $(DEV)
	@$(BIN)/python -m tests.audits

# Builds the documentation as a web site in site/; a broken link is an error.
docs: $(DOCS)
	@$(BIN)/properdocs build --quiet --config-file properdocs.yml
	@echo "Open site/index.html"

# Rewrites the generated tables of the reference and the manual pages, after commands or options have changed.
generate: $(DEV)
	@$(BIN)/python -m tests.audits.generate

# Installs the lowest or the newest declared versions in a temporary environment, then runs the demo and the tests that
# touch them; langchain: the newest beside LangChain's packages for the vendors, and the test that needs those.
lowest newest langchain: $(DEV)
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && set -e; \
	$(BIN)/python -m tests.audits.lowest $@ > "$$folder/versions.txt"; \
	$(PYTHON) -m venv "$$folder/venv"; \
	"$$folder/venv/bin/pip" --disable-pip-version-check install --quiet --upgrade pip; \
	"$$folder/venv/bin/pip" --disable-pip-version-check install --quiet -r "$$folder/versions.txt"; \
	"$$folder/venv/bin/pip" --disable-pip-version-check install --quiet --no-deps --no-build-isolation .; \
	(cd "$$folder" && venv/bin/agentos demo); \
	"$$folder/venv/bin/python" -m pytest -p no:cacheprovider tests/core tests/models tests/workflows tests/packaging; \
	test $@ != langchain || "$$folder/venv/bin/python" -m pytest -p no:cacheprovider -n0 -m "slow or not slow" \
		tests/scenarios/test_langchain_models.py

# Rewrites the lock files after the dependencies in pyproject.toml have changed; needs uv on the PATH.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --extra code pyproject.toml -o requirements/run.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --group dev -c requirements/run.txt pyproject.toml -o requirements/dev.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --group docs -c requirements/dev.txt -o requirements/docs.txt

clean:
	rm -rf $(VENV) site agentos-demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "agentos needs Python 3.11 or newer, found $$($(PYTHON) --version 2>&1). Choose another: make PYTHON=python3.12 demo" >&2; exit 1; }
	@echo "Setting up $(VENV) (once; a minute or two) ..."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python3 has no venv module: on Debian or Ubuntu, apt-get install python3-venv" >&2; exit 1; }

$(RUN): requirements/run.txt pyproject.toml | $(BIN)/python
	$(call install,requirements/run.txt,agentos needs)
	$(call install,requirements/build.txt,builds it)
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): requirements/dev.txt $(RUN)
	$(call install,requirements/dev.txt,the tests and checks need)
	@touch $@

$(DOCS): requirements/docs.txt | $(DEV)
	$(call install,requirements/docs.txt,builds the documentation)
	@touch $@
