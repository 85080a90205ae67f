//! The one integration binary: a module per area, real servers started by the tests.

mod algorithms;
mod asks;
mod cli;
mod cluster;
mod deny_cache;
mod dice;
mod draw;
mod exact;
mod faults;
mod files;
mod grpc;
mod http;
mod infra;
mod keys;
mod limits_files;
mod lua_and_rust;
mod memory_store;
mod outages;
mod redis_access;
mod redis_ring;
mod redis_slot;
mod redis_store;
mod script_runs;
mod spread;
mod support;
mod vectors;
