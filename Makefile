# Needs make and Python 3.11 or newer; everything else is installed into .venv on first use.

PYTHON ?= python3
RECENT_ENOUGH = import sys; sys.exit(sys.version_info < (3, 11))
PIP_INSTALL = .venv/bin/python -m pip install -qq --disable-pip-version-check
LONG_TESTS = TMPDIR="$${TMPDIR:-/tmp}" .venv/bin/python -m pytest -n 2 --timeout 1800
FAULT_TOOLS = strace iptables iproute2 libfaketime e2fsprogs

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

demo: .venv/perdure-installed ## Watch an agent get killed half way and resume
	@PATH="$$(pwd)/.venv/bin:$$PATH"; export PATH; unset PERDURE_STORE; \
	scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; trap 'exit 130' INT TERM; cd "$$scratch"; \
	echo '$$ perdure demo'; perdure demo; status=$$?; \
	case $$status in 0|137) ;; *) exit $$status ;; esac; \
	echo; echo '$$ perdure resume'; perdure resume

test: .venv/installed ## Run the tests, with a slice of the campaign of crashes
	@.venv/bin/python -m pytest -n 3 --dist worksteal -m 'not torture and not exhaustive'

check: .venv/installed ## Lint, check the format, the types and the layers
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

bench: .venv/bench-installed ## Measure the cost of a step against the alternatives
	@.venv/bin/python -m benchmarks

docs: .venv/installed ## Write the reference anew and build the site into build/docs
	@.venv/bin/python -m docs.generate
	@.venv/bin/python -m sphinx -b html -W --keep-going -q -j auto docs build/docs
	@echo 'build/docs/index.html'

# Tests are handed out one by one, the longest first: the two processes end within seconds of each other.
torture: .venv/installed fault-tools ## Run the campaign of crashes over SQLite and PostgreSQL: up to half an hour
	@$(LONG_TESTS) --maxschedchunk 1 -m '(torture or slice) and not exhaustive'

torture-frameworks: .venv/installed fault-tools ## Kill the scripts and adapters of every framework, in environments of their own
	@$(LONG_TESTS) -m exhaustive tests/adapters

exhaustive: .venv/installed fault-tools ## Run every combination and size that the other tests only sample
	@$(LONG_TESTS) -m exhaustive --ignore tests/adapters

fault-tools: # Debian's, where they can be installed; elsewhere the campaigns say what they had to leave out
	@missing=$$(for tool in $(FAULT_TOOLS); do dpkg -s $$tool >/dev/null 2>&1 || printf '%s ' $$tool; done); \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing tools that make faults: $$missing"; \
		apt-get install -y -qq $$missing >/dev/null 2>&1 \
			|| { apt-get update -qq && apt-get install -y -qq $$missing; } >/dev/null 2>&1 \
			|| echo 'That failed; the campaigns say what they had to leave out'; \
	fi

clean: ## Remove .venv, other environments, builds and caches
	@rm -rf .venv .venv-frameworks build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests benchmarks docs examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.venv/perdure-installed: pyproject.toml
	@if ! { .venv/bin/python -c '$(RECENT_ENOUGH)' && .venv/bin/python -m pip --version; } >/dev/null 2>&1; then \
		for candidate in "$(PYTHON)" python3.13 python3.12 python3.11; do \
			if "$$candidate" -c '$(RECENT_ENOUGH)' 2>/dev/null; then found=$$candidate; break; fi; \
		done; \
		if [ -z "$$found" ]; then \
			echo 'No Python 3.11 or newer found. Install one, or name it: make PYTHON=/path/to/python3' >&2; \
			exit 1; \
		fi; \
		echo "Creating .venv with $$("$$found" --version)"; \
		"$$found" -m venv --clear .venv || exit 1; \
	fi
	@echo 'Installing perdure into .venv'
	@$(PIP_INSTALL) -e .
	@touch $@

.venv/installed: .venv/perdure-installed
	@echo 'Installing the tools for tests, checks and documentation into .venv'
	@$(PIP_INSTALL) -e '.[test,check]'
	@touch $@

.venv/bench-installed: .venv/installed
	@echo 'Installing the libraries to compare with into .venv'
	@$(PIP_INSTALL) -e '.[bench]'
	@touch $@

.PHONY: help demo test check bench docs torture torture-frameworks exhaustive fault-tools clean
