# Everything that this project does, as commands that can be guessed. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The release that the parity suite was last run with.
OPA_VERSION := v1.22.3
.DEFAULT_GOAL := help
.PHONY: help setup demo run test check format bench profile referee opa faults faults-long lock docs clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.server ## Only the environment (.venv), from the lock file

demo: $(VENV)/.server ## Start everything on loopback and play a recorded model turn through it
	@$(BIN)/gateway demo

run: $(VENV)/.server ## As demo, then keep serving; prints URL, keys and a curl to paste
	@$(BIN)/gateway demo --keep

test: $(VENV)/.dev ## The whole test suite
	$(BIN)/python -m pytest -q

check: $(VENV)/.dev ## Format, lint, types, imports, the sample bundle
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/gateway check policies/travel

format: $(VENV)/.dev ## Format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev .tools/agentbarrier/.ready ## How fast a governed call is, beside a bare handler (ARGS=--quick: two minutes)
	@$(BIN)/python -m tests.benchmarks.run $(ARGS)

profile: $(VENV)/.dev ## Where a governed read's time goes
	@$(BIN)/python -m tests.benchmarks.profile_gateway $(ARGS)

referee: .tools/agentbarrier/.ready $(VENV)/.dev ## The outside referee (agentbarrier) on a running gateway
	$(BIN)/python -m pytest -q -s tests/conformance

opa: ## The real OPA for the tests: the one on PATH, else built with Go into .tools/
	@if command -v opa >/dev/null; then opa version | head -1; \
	elif [ -x .tools/opa ]; then .tools/opa version | head -1; \
	elif command -v go >/dev/null; then echo "building OPA $(OPA_VERSION) with Go"; \
	  GOBIN=$(CURDIR)/.tools GOFLAGS=-mod=mod go install github.com/open-policy-agent/opa@$(OPA_VERSION); \
	else echo "there is no opa on PATH and no go to build it with; the tests that need it will be skipped" >&2; exit 1; fi

vendors: .tools/vendors/.ready $(VENV)/.dev ## Dialects with the vendors' own clients: the oldest google-genai, OpenAI, Anthropic, MCP
	@PYTHONPATH=.tools/vendors $(BIN)/python -c 'from google.genai import __version__ as v; assert v.startswith("2.30."), v; print("google-genai", v)'
	PYTHONPATH=.tools/vendors $(BIN)/python -m pytest -q tests/acceptance/test_vendor_clients.py tests/integration/test_gemini_declarations.py

faults: $(VENV)/.dev ## Kill, freeze and cut everything, and check that nothing happened twice (ROWS=kills,cuts for some)
	$(BIN)/python -m tests.faults.run $(if $(ROWS),--rows $(ROWS))

faults-long: $(VENV)/.dev ## The same in the large; goes on where the last run ended (FOR=8m is the time of each row)
	$(BIN)/python -m tests.faults.run --long $(if $(ROWS),--rows $(ROWS)) $(if $(FOR),--for $(FOR))

docs: $(VENV)/.dev ## Write the generated pages of docs/ anew
	$(BIN)/python -m tests.generated

lock: ## Write the lock files anew (needs uv)
	uv pip compile pyproject.toml --extra server --group build --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -q -o requirements/server.lock
	uv pip compile pyproject.toml --extra server --group build --group dev --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -q -c requirements/server.lock -o requirements/dev.lock
	echo agentbarrier==1.1.0 | uv pip compile - --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -q -o requirements/agentbarrier.lock
	printf 'google-genai==2.30.0\nopenai>=3.57\nanthropic>=2.14\nmcp-types>=2.3\n' | uv pip compile - --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -q -o requirements/vendors.lock

clean: ## Remove the environment and what runs left behind
	rm -rf $(VENV) .gateway .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.server: requirements/server.lock pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/server.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.tools/agentbarrier/.ready: requirements/agentbarrier.lock
	$(PYTHON) -m venv .tools/agentbarrier
	.tools/agentbarrier/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/agentbarrier.lock
	@touch $@

# Clients that cannot or need not share the environment: it stands in front of it, on PYTHONPATH.
.tools/vendors/.ready: requirements/vendors.lock | $(VENV)/.dev
	rm -rf .tools/vendors
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --target .tools/vendors -r requirements/vendors.lock
	@touch $@

$(VENV)/.dev: requirements/dev.lock $(VENV)/.server
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@touch $@
