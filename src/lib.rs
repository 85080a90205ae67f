//! Tidegate decides whether requests may pass.
//!
//! One request in steps: [`grpc`] receives a message; [`request`] parses it; the rules in force
//! ([`rules`]) give the limits that it meets, and [`plan`] the counters ([`key`]) to ask; a
//! [`store`] tests every limit and takes from all or from none, by [`decide`] and [`algorithm`] or
//! by the same in Lua; [`service`] makes the answer and counts it ([`metrics`]).
//!
//! Use goes one way, from the edges to the arithmetic: [`limit`], [`algorithm`], [`decide`] and
//! [`key`] know no protocol, no store and no clock.

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
pub mod memory_budget;
pub mod metrics;
pub mod on_store_failure;
pub mod period;
pub mod plan;
pub mod proto;
pub mod request;
pub mod rules;
mod secret_file;
pub mod server;
pub mod service;
pub mod settings;
pub mod store;
pub mod store_error;
pub mod tls;
pub mod trace;
