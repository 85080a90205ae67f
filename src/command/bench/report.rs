//! The report, as text and as JSON.

use std::fmt::Write;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use super::tally::Tally;

/// The percentiles reported.
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// The result of a load.
pub(super) struct Result {
    pub(super) tally: Tally,
    /// All requests, including those before the measurement.
    pub(super) sent: u64,
    /// When the measurement began.
    pub(super) from: Duration,
    /// CPU time of this process for all requests, if the system reports it.
    pub(super) cpu_ns: Option<u64>,
}

impl Result {
    fn seconds(&self) -> f64 {
        self.tally.last.saturating_sub(self.from).as_secs_f64()
    }

    fn per_second(&self) -> f64 {
        self.tally.requests() as f64 / self.seconds().max(1e-9)
    }

    fn quantile_us(&self, quantile: f64) -> f64 {
        self.tally.latencies.value_at_quantile(quantile) as f64 / 1_000.0
    }

    fn cpu_us(&self) -> Option<f64> {
        self.cpu_ns.map(|ns| ns as f64 / 1_000.0 / self.sent.max(1) as f64)
    }
}

/// CPU time of this thread, which does all the work.
pub(super) fn cpu_ns() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// The report as text, one line per figure.
pub(super) fn text(result: &Result) -> String {
    let tally = &result.tally;
    let (requests, seconds) = (tally.requests(), result.seconds());
    let mut text = format!("requests    {requests} in {seconds:.3} s\n");
    let _ = writeln!(text, "a second    {:.0}", result.per_second());
    let _ = writeln!(text, "allowed     {}", tally.allowed);
    let _ = writeln!(text, "over limit  {}", tally.over_limit);
    let _ = writeln!(text, "errors      {}", tally.errors.values().sum::<u64>());
    for (why, count) in &tally.errors {
        let _ = writeln!(text, "  {why}: {count}");
    }
    for (name, quantile) in QUANTILES {
        let _ = writeln!(text, "{name:<12}{:.1} us", result.quantile_us(quantile));
    }
    if let Some(us) = result.cpu_us() {
        let _ = writeln!(text, "own CPU     {us:.2} us a request");
    }
    text
}

/// The report as one JSON object.
pub(super) fn json(result: &Result) -> String {
    let tally = &result.tally;
    let latencies = QUANTILES.map(|(name, at)| (name.to_owned(), json!(result.quantile_us(at))));
    let value = json!({
        "requests": tally.requests(),
        "seconds": result.seconds(),
        "requests_per_second": result.per_second(),
        "allowed": tally.allowed,
        "over_limit": tally.over_limit,
        "errors": tally.errors,
        "latency_us": Value::Object(latencies.into_iter().collect()),
        "sent": result.sent,
        "cpu_us_per_request": result.cpu_us(),
    });
    format!("{value}\n")
}
