//! Headings in `--help`. A heading holds for all arguments after it, so groups with one come last.

pub(super) const LIMITS: &str = "Limits";
pub(super) const STORE: &str = "Store";
pub(super) const FAILURE: &str = "When the store fails";
pub(super) const PORTS: &str = "Ports";
pub(super) const CONNECTIONS: &str = "Threads, connections and shutdown";
pub(super) const REQUESTS: &str = "Bounds of requests";
pub(super) const ENVOY: &str = "Answers to Envoy";
pub(super) const TELEMETRY: &str = "Log, metrics and traces";
pub(super) const TLS: &str = "TLS";
