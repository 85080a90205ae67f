# Targets for people and CI. `make` without a target lists them.

# Tools that no package manager pins; see tests/tools/servers.txt for the others.
CARGO_DENY_VERSION = 0.20.2
CARGO_FUZZ_VERSION = 0.13.2

# Seconds per fuzz target.
FUZZ_SECONDS ?= 60

# The number of measurements of each load of the bench, and their duration in seconds.
BENCH_ROUNDS ?= 5
BENCH_SECONDS ?= 2

TOOLS = .servers/cargo
SCRIPTS = .ci/run deploy/example/run tests/tools/install-servers

.DEFAULT_GOAL = help
.PHONY: help run test lint fmt counts counts-write bench faults dashboard plots fuzz clean-servers

help: ## List these targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# The next command for a newcomer, in another terminal.
TRY = target/release/tidegate query --domain edge user_id=42 ip=203.0.113.9 api=/search everyone=

run: ## Serve the example limits from memory; requires only Rust.
	cargo build --release
	@echo "once it runs, try this in another terminal: $(TRY)"
	target/release/tidegate serve --limits deploy/example/limits.yaml

test: ## Install the servers that the tests need, then run all tests.
	tests/tools/install-servers
	cargo test

lint: ## Check format, lints, docs, scripts, the container file, the API, dependencies and that the fuzz targets build.
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --no-deps
	tests/tools/install-servers shellcheck hadolint buf
	.servers/shellcheck/shellcheck $(SCRIPTS)
	.servers/hadolint/hadolint deploy/Containerfile
	.servers/buf/buf lint proto
	@command -v cargo-deny >/dev/null || $(MAKE) $(TOOLS)/bin/cargo-deny
	PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" cargo deny --log-level error check bans licenses sources

fmt: ## Format the Rust code.
	cargo fmt --all

# Uses the dependencies that `cargo test` built, so that only Tidegate is compiled again.
COUNTS = tests/tools/install-servers valgrind && \
	cargo test --config tests/bench/counts/profile.toml --bench counts --

counts: ## Count the instructions of each step of a request; fails if a step takes over 3 % more than recorded.
	$(COUNTS) compare

counts-write: ## Record the instructions of each step: writes tests/bench/counts/counts.txt
	$(COUNTS) write

# BENCH_ADDR=name=host:port[=pid] measures further services, separated by commas.
export BENCH_ROUNDS BENCH_SECONDS BENCH_ADDR

bench: ## Measure the cost of a request in BENCH_ROUNDS (5) of BENCH_SECONDS (2); writes docs/performance.*
	tests/tools/install-servers redis-7.0
	cargo bench --bench service

# Tests of `make test`, run one by one with the release build, for their figures.
FAULTS = faults:: cluster::a_slot cluster::a_lost cluster::half_moved::a_reshard

faults: ## Run a load through every fault of Redis and print the results as a table.
	tests/tools/install-servers redis-7.0 valkey-9.1 redis-6.2
	@echo '| fault | requests | p99.9 of the answers | Redis decides again after |'
	@echo '| --- | --- | --- | --- |'
	@cargo test --release --test it -- --test-threads 1 --nocapture $(FAULTS) 2>&1 | grep -o '| [^|]* | [0-9]* | .*|$$'

# cargo-fuzz uses nightly flags; RUSTC_BOOTSTRAP makes the stable compiler accept them. The code
# has no unsafe block, so an address sanitizer would only make the search slower. The release profile's
# link-time optimization would remove coverage counters. The first folder receives the inputs that
# the fuzzer finds, further ones are seeds.
FUZZ = RUSTC_BOOTSTRAP=1 CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" \
	cargo fuzz run --fuzz-dir tests/fuzz --sanitizer none
FUZZ_FLAGS = -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -max_len=16384

dashboard: ## Draw the dashboard of a service under load: writes docs/dashboard.svg
	tests/tools/install-servers redis-7.0 prometheus redis-exporter
	TIDEGATE_DRAW_DASHBOARD=docs/dashboard.svg cargo test --test it every_query_of_the_dashboard

plots: ## Draw the requests that each algorithm admits of the same traffic: writes docs/algorithms.*
	TIDEGATE_DRAW_PLOTS=yes cargo test --test it the_plots_equal_the_results_of_simulate

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
