//! Tidegate decides whether requests may pass.
//!
//! One request in steps: [`grpc`] receives a message; [`request`] parses it; the current rules
//! ([`rules`]) give the limits that it matches, and [`plan`] the counters ([`key`]) to test; a
//! [`store`] tests every limit and takes from all or from none, with [`decide`] and [`algorithm`]
//! or with the same arithmetic in Lua; [`service`] makes the answer and counts it ([`metrics`]).
//!
//! Dependencies point one way, from the edges to the arithmetic: [`limit`], [`algorithm`],
//! [`decide`] and [`key`] know no protocol, no store and no clock.

pub mod algorithm;
pub mod body;
pub mod clock;
pub mod command;
pub mod decide;
pub mod decision;
mod entries;
pub mod envoy;
mod file;
pub mod follow;
pub mod grpc;
pub mod http;
pub mod key;
pub mod limit;
pub mod limit_spec;
pub mod memory_budget;
pub mod metrics;
pub mod on_store_failure;
pub mod peer;
pub mod period;
pub mod plan;
mod printable;
pub mod proto;
pub mod request;
pub mod rules;
mod secret_file;
pub mod server;
pub mod service;
pub mod settings;
pub mod store;
pub mod store_error;
mod suggest;
pub mod tls;
pub mod trace;
