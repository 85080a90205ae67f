# Words that people and CI type. `make` alone lists them.

# Tools that no package manager pins for us; see tests/tools/servers.txt for the others.
CARGO_DENY_VERSION = 0.20.2
CARGO_FUZZ_VERSION = 0.13.2

# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60

# How often to measure each load of the bench, and for how many seconds.
BENCH_ROUNDS ?= 5
BENCH_SECONDS ?= 2

TOOLS = .servers/cargo
SCRIPTS = .ci/run deploy/example/run tests/tools/install-servers

.DEFAULT_GOAL = help
.PHONY: help run test lint fmt counts counts-write bench faults dashboard plots fuzz clean-servers

help: ## List these targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# What a newcomer types next, in another terminal.
TRY = target/release/tidegate query --domain edge user_id=42 ip=203.0.113.9 api=/search everyone=

run: ## Serve the example limits from memory; needs nothing but Rust.
	cargo build --release
	@echo "once it runs, ask it in another terminal: $(TRY)"
	target/release/tidegate serve --limits deploy/example/limits.yaml

test: ## Install the servers that the tests need, then run all tests.
	tests/tools/install-servers
	cargo test

lint: ## Check format, lints, docs, scripts, the container file, dependencies and that the fuzz targets build.
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --no-deps
	tests/tools/install-servers shellcheck hadolint
	.servers/shellcheck/shellcheck $(SCRIPTS)
	.servers/hadolint/hadolint deploy/Containerfile
	@command -v cargo-deny >/dev/null || $(MAKE) $(TOOLS)/bin/cargo-deny
	PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" cargo deny --log-level error check bans licenses sources

fmt: ## Format the Rust code.
	cargo fmt --all

# Dependencies as `cargo test` builds them, so that only Tidegate is compiled again.
COUNTS = tests/tools/install-servers valgrind && \
	cargo test --config tests/bench/counts/profile.toml --bench counts --

counts: ## Count the instructions of each step of a request; over 3 % more than recorded fail.
	$(COUNTS) compare

counts-write: ## Record the instructions of each step: writes tests/bench/counts/counts.txt
	$(COUNTS) write

# BENCH_ADDR=name=host:port[=pid] measures other services too, several by comma.
export BENCH_ROUNDS BENCH_SECONDS BENCH_ADDR

bench: ## Measure what a request costs in BENCH_ROUNDS (5) of BENCH_SECONDS (2); writes docs/performance.*
	tests/tools/install-servers redis-7.0
	cargo bench --bench service

# The tests of `make test`, one by one and by the release build, for their figures.
FAULTS = faults:: cluster::a_slot cluster::a_lost cluster::half_moved::a_reshard

faults: ## Put a load through every fault of Redis and print what came of it as a table.
	tests/tools/install-servers redis-7.0 valkey-9.1 redis-6.2
	@echo '| fault | requests | p99.9 of the answers | Redis decides again after |'
	@echo '| --- | --- | --- | --- |'
	@cargo test --release --test it -- --test-threads 1 --nocapture $(FAULTS) 2>&1 | grep -o '| [^|]* | [0-9]* | .*|$$'

# cargo-fuzz asks for nightly flags; RUSTC_BOOTSTRAP lets the stable compiler take them. The code
# has no unsafe block, so an address sanitizer would only make the search slower. The release profile's
# optimization over crates would drop counters of coverage. The first folder takes what the fuzzer
# finds, further ones are seeds.
FUZZ = RUSTC_BOOTSTRAP=1 CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" \
	cargo fuzz run --fuzz-dir tests/fuzz --sanitizer none
FUZZ_FLAGS = -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -max_len=16384

dashboard: ## Draw the dashboard of a service under load: writes docs/dashboard.svg
	tests/tools/install-servers redis-7.0 prometheus redis-exporter
	TIDEGATE_DRAW_DASHBOARD=docs/dashboard.svg cargo test --test it every_query_of_the_dashboard

plots: ## Draw what each algorithm admits of the same traffic: writes docs/algorithms.*
	TIDEGATE_DRAW_PLOTS=yes cargo test --test it the_plots_are_what_simulate_says

fuzz: $(TOOLS)/bin/cargo-fuzz ## Fuzz each parser for FUZZ_SECONDS (60).
	mkdir -p tests/fuzz/corpus/limits tests/fuzz/corpus/request tests/fuzz/corpus/golden
	awk '/^=== / { file = "tests/fuzz/corpus/golden/" $$2 ".yaml"; next } /^--- says$$/ { close(file); file = "" } \
		file { print >file }' tests/golden/limits/*.cases
	$(FUZZ) limits tests/fuzz/corpus/limits deploy/example tests/fuzz/corpus/golden $(FUZZ_FLAGS)
	$(FUZZ) request tests/fuzz/corpus/request $(FUZZ_FLAGS)

clean-servers: ## Remove the servers and tools that these targets installed.
	rm -rf .servers

$(TOOLS)/bin/cargo-deny:
	cargo install --locked --root $(TOOLS) cargo-deny --version $(CARGO_DENY_VERSION)

$(TOOLS)/bin/cargo-fuzz:
	cargo install --locked --root $(TOOLS) cargo-fuzz --version $(CARGO_FUZZ_VERSION)
