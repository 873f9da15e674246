# Bursar's front door. `make` alone lists what is here; CI runs the same targets.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
DATA ?= .bursar
TARGET := $(or $(CARGO_TARGET_DIR),target)
TOOLS := $(or $(BURSAR_TOOLS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bursar/tools)
BURSAR := $(TARGET)/debug/bursar
export PATH := $(TOOLS)/bin:$(PATH)
# What `bursar up` starts, and bursar itself: `make run` compiles neither the benchmark nor the tests. The binaries are picked out of
# the whole workspace (not with `-p`), so that cargo resolves the same features as for the tests and no crate is built twice.
PROGRAMS := bursar confirmation execution indexer intent signer-gateway tron-devnet worker-control

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.PHONY: run
run: build ## Start everything on this machine, pay a first withdrawal, keep it up until Ctrl-C
	@$(BURSAR) up --data "$(DATA)" --demo

.PHONY: demo
demo: build ## As run, but ends by itself once the withdrawals are paid
	@if $(BURSAR) status --data "$(DATA)" >/dev/null 2>&1; then exec $(BURSAR) demo --data "$(DATA)"; fi; \
	trap '$(BURSAR) down --data "$(DATA)"' EXIT; \
	$(BURSAR) up --data "$(DATA)" --detach; \
	$(BURSAR) demo --data "$(DATA)"

.PHONY: build
build: setup-run ## Build the services and the command line tool
	@echo "==> building (the first time takes some minutes)"
	@$(CARGO) build --workspace $(addprefix --bin ,$(PROGRAMS))

.PHONY: test
test: setup-test ## Run every test, on real servers that the tests start themselves
	@echo "==> building the services and the tests"
	@$(CARGO) build --workspace --all-targets
	@echo "==> running the tests"
	@scripts/run-tests

.PHONY: lint
lint: setup-lint ## Check format, lints, dependencies, contracts, licences, shell syntax
	@echo "==> rustfmt"
	@$(CARGO) fmt --all --check
	@echo "==> clippy"
	@$(CARGO) clippy --workspace --all-targets -- -D warnings
	@echo "==> unused dependencies"
	@scripts/check-dependencies
	@echo "==> buf lint"
	@buf lint proto
	@echo "==> buf breaking"
	@buf breaking proto --against proto/released.binpb
	@echo "==> contracts of the tests"
	@scripts/check-contracts
	@echo "==> cargo deny"
	@scripts/check-licences
	@echo "==> shell syntax"
	@for f in .ci/run scripts/*; do case $$(head -n 1 $$f) in *python3) python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' $$f ;; *) bash -n $$f ;; esac; done

.PHONY: bench
bench: setup-run ## Measure ours against the raw limit and against peers, as ratios (BENCH=quick for a short run)
	@echo "==> building in release mode"
	@$(CARGO) build --release --workspace --bins
	@$(TARGET)/release/bench

.PHONY: fmt
fmt: ## Format the sources
	@$(CARGO) fmt --all

.PHONY: proto
proto: setup-lint ## Check the contracts and generate their code
	@buf lint proto
	@$(CARGO) build -p proto

.PHONY: proto-release
proto-release: setup-lint ## Record the contracts as released: later changes must stay compatible with them
	@buf build proto --exclude-source-info -o proto/released.binpb

.PHONY: clean
clean: ## Stop the stack and remove its data and the build
	@if [ ! -d "$(DATA)" ]; then :; \
	elif [ -x $(BURSAR) ]; then $(BURSAR) down --purge --data "$(DATA)"; \
	else echo "$(DATA) stays: \`make build\` first, so that bursar can stop what runs there and remove it"; fi
	@$(CARGO) clean

.PHONY: setup-run setup-test setup-lint
setup-run setup-test setup-lint: setup-%:
	@scripts/install-tools $*
