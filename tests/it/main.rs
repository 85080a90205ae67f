//! The only integration test binary: one module per area, with real servers started by the tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    reason = "a test that cannot go on panics, and a binary exports nothing"
)]

mod algorithms;
mod cli;
mod clients;
mod cluster;
mod conformance;
mod counters;
mod deny_cache;
mod deploy;
mod docs;
mod envoy;
mod eviction;
mod exact;
mod examples;
mod faults;
mod files;
mod format;
mod grpc;
mod hostile_redis;
mod http;
#[allow(clippy::disallowed_methods, reason = "other processes take real time")]
mod infra;
mod key_secret;
mod keys;
mod layers;
mod lifecycle;
mod limits_files;
mod log;
mod lua_and_rust;
mod memory_store;
mod outages;
mod overdraft;
mod overload;
mod random;
mod random_limits;
mod reconcile;
mod redis_access;
mod redis_ring;
mod redis_slot;
mod redis_store;
mod reference;
mod refunds;
mod reload;
mod run_cost;
mod scatter;
mod script_runs;
mod sockets;
mod store_tls;
mod stores_agree;
#[allow(clippy::disallowed_methods, reason = "deadlines for other processes need real time")]
mod support;
mod tls;
mod traces;
mod vectors;
