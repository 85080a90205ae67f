//! Settings of connections: how many, how long, and how they end.

use std::time::Duration;

use clap::Args;

use super::values::{count, duration_within};
use crate::period::Unit;

/// How connections are kept and ended.
#[derive(Args, Clone, Debug)]
pub struct Connections {
    /// Connections on the gRPC port; more are closed at once
    #[arg(long, env = "TIDEGATE_MAX_CONNECTIONS", default_value_t = 16_384, value_parser = count, value_name = "N")]
    pub max_connections: usize,
    /// How old a gRPC connection gets, give or take a tenth, before its caller is asked to connect
    /// anew: so that replicas which came later get calls too; 0 lets it stay
    #[arg(long, env = "TIDEGATE_MAX_CONNECTION_AGE", default_value = "30m", value_parser = span_or_never, value_name = "DURATION")]
    pub max_connection_age: SpanOrNever,
    /// From SIGTERM, when health and /readyz say no, to the end of accepting: what load balancers
    /// need to notice; 0 does not wait
    #[arg(long, env = "TIDEGATE_DRAIN_DELAY", default_value = "5s", value_parser = span, value_name = "DURATION")]
    pub drain_delay: Duration,
    /// How long calls in flight may take after that, before they are cut off
    #[arg(long, env = "TIDEGATE_DRAIN_TIMEOUT", default_value = "10s", value_parser = span, value_name = "DURATION")]
    pub drain_timeout: Duration,
}

/// From nothing to a day.
fn span(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { duration_within(text, 0..=Unit::Day.ms()) }
}

/// `Option` spelt out, or clap would take it for a flag that may be left out.
type SpanOrNever = std::option::Option<Duration>;

fn span_or_never(text: &str) -> Result<SpanOrNever, String> {
    span(text).map(|span| Some(span).filter(|span| !span.is_zero()))
}
