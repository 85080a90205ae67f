//! Settings of `bench`.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;

use super::client::Client;
use super::heading;
use super::values::{Entries, count, duration_within, entries};
use crate::period::Unit;

/// The patterns of values, for `--help`.
pub(super) const PATTERNS: &str = "\
Values, drawn anew for every request:
  user=42                          this text
  user={uniform:100000}            a whole number below 100000, all equally often
  user={zipf:100000}               rank r as often as 1/r^1.1; {zipf:100000:1.3} sets the exponent
  user={seq}                       0, 1, 2, … over all connections; {seq:1000} starts again at 1000
  user=u-{uniform:10}-{seq}        text and patterns together
  user={mix:90:hot|{uniform:100}}  hot for 90 % of requests, the other for the rest; either side is
                                   text, patterns or both

Examples:
  tidegate bench --domain edge 'user_id={uniform:100000}' 'ip={zipf:100000}' everyone=
  tidegate bench --domain edge 'user_id={seq}' --rate 5000 --duration 30s";

/// Settings of `bench`.
#[derive(Args, Clone, Debug)]
pub struct Bench {
    /// The service: HOST[:PORT], https://HOST[:PORT] or unix:PATH; any that implements Envoy's
    /// ShouldRateLimit. The port is 8081 unless given
    #[arg(long, env = "TIDEGATE_ADDR", default_value = "127.0.0.1:8081", value_name = "ADDR")]
    pub addr: String,
    /// The domain of the limits file
    #[arg(long, value_name = "D")]
    pub domain: String,
    /// Descriptors: the entries of each, separated by commas. Values may contain patterns
    #[arg(required = true, value_name = "k=v[,k=v]", value_parser = entries)]
    pub descriptors: Vec<Entries>,
    /// Hits per descriptor; 0 leaves it to the service, which takes 1
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub hits: u32,
    /// Connections, which requests use in turn
    #[arg(long, default_value_t = 4, value_parser = count, value_name = "N")]
    pub connections: usize,
    /// Requests in flight, over all connections (closed loop): each answer triggers the next
    /// request
    #[arg(long, default_value_t = 128, value_parser = count, value_name = "N")]
    pub in_flight: usize,
    /// Requests per second, sent at random moments (open loop, a Poisson process) whether or not
    /// answers come. Latency counts from the moment when a request was due
    #[arg(long, conflicts_with = "in_flight", value_parser = rate, value_name = "N")]
    pub rate: Option<NonZeroU32>,
    /// How long to measure. Ctrl-C ends it early and prints the results so far
    #[arg(long, default_value = "10s", value_parser = run_time, value_name = "DURATION")]
    pub duration: Duration,
    /// How long to send before measuring; not with --requests
    #[arg(long, default_value = "1s", value_parser = run_time, value_name = "DURATION")]
    pub warmup: Duration,
    /// Send exactly this many requests, however long it takes
    #[arg(long, conflicts_with_all = ["duration", "warmup"], value_name = "N")]
    pub requests: Option<u64>,
    /// Seed of the random numbers: the same seed draws the same values
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// TLS
    #[command(flatten, next_help_heading = heading::TLS)]
    pub client: Client,
}

/// A bench may run for days, to see leaks and the effect of restarts.
fn run_time(text: &str) -> Result<Duration, String> {
    duration_within(text, 1..=30 * Unit::Day.ms())
}

fn rate(text: &str) -> Result<NonZeroU32, String> {
    let rate = text.parse::<NonZeroU32>().ok().filter(|rate| rate.get() <= 1_000_000);
    rate.ok_or_else(|| "must be a whole number from 1 to 1000000".to_owned())
}
