# `make help` names the targets. Everything runs from .venv, which `make sync` builds.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help sync fmt check test sim stack demo screens examples drill bench

help: ## what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

sync: .venv/.synced ## the tools and libraries of requirements.lock, by hash, in .venv

.venv/.synced: requirements.lock pyproject.toml .ci/sync
	@PYTHON=$(PYTHON) .ci/sync
	@touch $@

fmt: sync ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: sync ## linters, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: sync check ## everything CI runs: checks, unit, contract, integration, kill tests
	$(BIN)/python -m tests.run

sim: sync ## the simulation: SEEDS=500 from FIRST=1 on, then the planted bugs
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),500) --from $(or $(FIRST),1)
	$(BIN)/python -m tests.simulation --mutants

stack: sync ## a local stack that stays up: Postgres, Kafka, Connect, stand-in, worker
	$(BIN)/tailrace sandbox up

demo: sync ## the whole story on a real stack, proved and cleaned up
	@$(BIN)/tailrace demo

screens: sync ## pictures of the console's pages, with data, in build/screens
	$(BIN)/python -m pytest -q tests/integration/console/test_browser.py

examples: sync ## the order service in six languages, on a database of its own; fetches their libraries
	$(BIN)/python -m pytest -q tests/integration/examples

drill: sync ## every fault on the real stack, then 10,000 seeds of the simulation; reports in build
	$(BIN)/tailrace drill run --all; drills=$$?; \
	$(BIN)/python -m tests.simulation --seeds 10000 && exit $$drills

bench: sync ## speed beside what people would use instead, in one run
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.bench measures
	@$(BIN)/python -m tests.bench goals
