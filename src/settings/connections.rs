//! Settings of connections.

use std::time::Duration;

use clap::Args;

use super::values::{count, duration_within};
use crate::peer::Network;
use crate::period::Unit;

/// How connections are kept and closed.
#[derive(Args, Clone, Debug)]
pub struct Connections {
    /// Connections on the gRPC port, at most. Beyond, connections of the address with the most are
    /// closed, idle ones first
    #[arg(long, env = "TIDEGATE_MAX_CONNECTIONS", default_value_t = 16_384, value_parser = count, value_name = "N")]
    pub max_connections: usize,
    /// Addresses or networks of proxies, separated by commas, such as 10.1.0.0/16. Connections from
    /// other addresses share what a port has by address: by IPv4 address, or by the first 64 bits of an
    /// IPv6 address. Those of a proxy count one by one, because it speaks for many
    #[arg(long, env = "TIDEGATE_TRUSTED_PEERS", value_delimiter = ',', value_name = "NETWORKS")]
    pub trusted_peers: Vec<Network>,
    /// Age, give or take a tenth, at which a gRPC connection gets GOAWAY, so that callers reconnect
    /// and new replicas get their share; 0: never
    #[arg(long, env = "TIDEGATE_MAX_CONNECTION_AGE", default_value = "30m", value_parser = span_or_never, value_name = "DURATION")]
    pub max_connection_age: SpanOrNever,
    /// How long to keep accepting connections after SIGTERM, while health and /readyz report that
    /// the service is not ready. Load balancers need this time to notice
    #[arg(long, env = "TIDEGATE_DRAIN_DELAY", default_value = "5s", value_parser = span, value_name = "DURATION")]
    pub drain_delay: Duration,
    /// How long calls in flight may take after that
    #[arg(long, env = "TIDEGATE_DRAIN_TIMEOUT", default_value = "10s", value_parser = span, value_name = "DURATION")]
    pub drain_timeout: Duration,
}

/// From 0 to a day.
fn span(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { duration_within(text, 0..=Unit::Day.ms()) }
}

/// The full path of `Option`: clap treats a plain `Option` as an optional flag.
type SpanOrNever = std::option::Option<Duration>;

fn span_or_never(text: &str) -> Result<SpanOrNever, String> {
    span(text).map(|span| Some(span).filter(|span| !span.is_zero()))
}
