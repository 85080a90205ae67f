//! Every metric, in one table.
//!
//! Handles are made when rules load, so that counting costs no lookup and no label comes from
//! traffic, except where a rule asks for it ([`checks`]).

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use parking_lot::Mutex;

pub mod checks;
mod configured;
mod counts;
mod decisions;
mod process;
mod rules;
mod tls;
pub mod top;

use checks::Checks;
pub use counts::{Failures, LogLines, Reconciled, SpanCounts};
use decisions::Decisions;
pub(crate) use rules::OVERRIDE;
pub use rules::{RuleMetrics, RuleNames};
pub use tls::TlsMetrics;
use top::Top;

const DECISION_SECONDS: &str = "rate_limit_decision_duration_seconds";
const REDIS_SECONDS: &str = "redis_operation_duration_seconds";
const STORE_UP: &str = "rate_limit_store_up";
const STORE_ERRORS: &str = "rate_limit_store_errors_total";
const RELOADS: &str = "rate_limit_config_reload_total";
const RELOADED_AT: &str = "rate_limit_config_last_reload_timestamp_seconds";
const RELOADED_WELL: &str = "rate_limit_config_last_reload_successful";
const SHED: &str = "rate_limit_shed_total";
const IN_FLIGHT: &str = "rate_limit_in_flight";
const CONNECTIONS: &str = "rate_limit_connections";
const CONFIG_INFO: &str = "rate_limit_config_info";
const RUN_REQUESTS: &str = "rate_limit_store_run_requests";
const MEMORY_KEYS: &str = "rate_limit_memory_keys";
const MEMORY_EVICTED: &str = "rate_limit_memory_evicted_total";
const BUILD_INFO: &str = "tidegate_build_info";

/// 50 µs to 1 s.
const BUCKETS: [f64; 14] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0,
];

/// Requests per run: up to the default of `--store-batch-max`, and four times it.
const RUN_BUCKETS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// All metrics of the process.
#[derive(Clone)]
pub struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    /// From a request's arrival in the service to its decision.
    pub decision_seconds: Histogram,
    /// Duration of one script run.
    pub evalsha_seconds: Histogram,
    /// Requests that one script run decides.
    pub run_requests: Histogram,
    /// 1 while the store decides, else 0.
    pub store_up: Gauge,
    errors: Vec<(&'static str, Counter)>,
    /// The hash of the rules in force.
    config: Arc<Mutex<String>>,
    reloads: Counter,
    reloads_refused: Counter,
    reloaded_at: Gauge,
    reloaded_well: Gauge,
    shed: [Counter; Shed::ALL.len()],
    in_flight: Gauge,
    connections: Gauge,
    memory_keys: Gauge,
    memory_evicted: Counter,
    /// Calls without a decision.
    pub failures: Failures,
    /// Hits that were admitted without the store and counted there later, or never.
    pub reconciled: Reconciled,
    /// Spans of traces.
    pub spans: SpanCounts,
    /// Lines of the decision log.
    pub decision_log: LogLines,
    decisions: Arc<Decisions>,
    /// Checks of limits.
    pub checks: Arc<Checks>,
    /// The values rejected most.
    pub top: Arc<Top>,
}

/// Resources in use.
#[derive(Clone, Copy, Debug)]
pub struct InUse {
    /// Calls being decided.
    pub calls: usize,
    /// Connections on the gRPC port.
    pub connections: usize,
}

/// Why work was refused, to protect the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// A call beyond `--max-in-flight`.
    InFlight = 0,
    /// A connection beyond the maximum of its port.
    Connections = 1,
    /// A call whose message arrives slowly while the budget for slow messages is used up.
    Messages = 2,
    /// A connection whose peer does not read its answers.
    Stalled = 3,
    /// A page, while the budget for slowly read pages is used up.
    Pages = 4,
    /// A connection whose peer resets too many streams, or sends endless headers or too many frames
    /// beside calls.
    Flood = 5,
    /// A call, while the budget for open calls is used up.
    OpenCalls = 6,
}

impl Shed {
    const ALL: [Self; 7] = [
        Self::InFlight,
        Self::Connections,
        Self::Messages,
        Self::Stalled,
        Self::Pages,
        Self::Flood,
        Self::OpenCalls,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Connections => "connections",
            Self::Messages => "messages",
            Self::Stalled => "stalled",
            Self::Pages => "pages",
            Self::Flood => "flood",
            Self::OpenCalls => "open_calls",
        }
    }
}

impl Metrics {
    /// Creates metrics with a recorder of their own, so that several services in one process stay
    /// apart. At most `series_max` series have values of requests in their labels. `store_error_kinds`
    /// are the values that [`Metrics::count_store_error`] accepts.
    ///
    /// # Errors
    /// The exporter does not accept the histogram buckets.
    pub fn new(series_max: usize, store_error_kinds: &[&'static str]) -> Result<Self, BuildError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)?
            .set_buckets_for_metric(Matcher::Full(RUN_REQUESTS.to_owned()), &RUN_BUCKETS)?
            .build_recorder();
        let handle = recorder.handle();
        let recorder = Arc::new(recorder);
        let metrics = with_local_recorder(&*recorder, || {
            describe();
            gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
            let error = |kind| (kind, counter!(STORE_ERRORS, "kind" => kind));
            Self {
                handle,
                decision_seconds: histogram!(DECISION_SECONDS),
                evalsha_seconds: histogram!(REDIS_SECONDS, "operation" => "evalsha"),
                run_requests: histogram!(RUN_REQUESTS),
                store_up: gauge!(STORE_UP),
                errors: store_error_kinds.iter().copied().map(error).collect(),
                config: Arc::default(),
                reloads: counter!(RELOADS, "result" => "success"),
                reloads_refused: counter!(RELOADS, "result" => "failure"),
                reloaded_at: gauge!(RELOADED_AT),
                reloaded_well: gauge!(RELOADED_WELL),
                shed: Shed::ALL.map(|shed| counter!(SHED, "reason" => shed.name())),
                in_flight: gauge!(IN_FLIGHT),
                connections: gauge!(CONNECTIONS),
                memory_keys: gauge!(MEMORY_KEYS),
                memory_evicted: counter!(MEMORY_EVICTED),
                failures: Failures::new(),
                reconciled: Reconciled::new(),
                spans: SpanCounts::new(),
                decision_log: LogLines::new(),
                decisions: Arc::default(),
                checks: Arc::new(Checks::new(series_max)),
                top: Arc::default(),
                recorder: Arc::clone(&recorder),
            }
        });
        Ok(metrics)
    }

    /// The text that Prometheus scrapes.
    pub fn render(&self) -> String {
        with_local_recorder(&*self.recorder, process::collect);
        let mut text = self.handle.render();
        self.decisions.render(&mut text);
        self.checks.render(&mut text);
        text + &config_info(&self.config.lock())
    }

    /// Compacts histograms; to be called every few seconds.
    pub fn run_upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// The handles for a rule set.
    pub fn of_rules(&self, names: &RuleNames<'_>) -> RuleMetrics {
        RuleMetrics::new(names, &self.checks, &self.decisions)
    }

    /// Counts a decision that the store could not make, by the kind of its error.
    pub fn count_store_error(&self, kind: &str) {
        let found = self.errors.iter().find(|(known, _)| *known == kind);
        if let Some((_, counter)) = found {
            counter.increment(1);
        }
    }

    /// Records that limits with this hash came into force.
    #[allow(clippy::cast_precision_loss)] // seconds
    pub fn loaded(&self, hash: &str, now_ms: u64) {
        hash.clone_into(&mut self.config.lock());
        self.reloads.increment(1);
        self.reloaded_at.set((now_ms / 1_000) as f64);
        self.reloaded_well.set(1.0);
    }

    /// Records that limits were refused.
    pub fn refused(&self) {
        self.reloads_refused.increment(1);
        self.reloaded_well.set(0.0);
    }

    /// The metrics of a port with TLS.
    pub fn tls(&self, port: &'static str) -> TlsMetrics {
        with_local_recorder(&*self.recorder, || TlsMetrics::new(port))
    }

    /// The counter of refused work.
    pub const fn shed(&self, shed: Shed) -> &Counter {
        &self.shed[shed as usize]
    }

    /// Sets the gauges of calls in flight and connections.
    #[allow(clippy::cast_precision_loss)] // counts
    pub fn in_use(&self, InUse { calls, connections }: InUse) {
        self.in_flight.set(calls as f64);
        self.connections.set(connections as f64);
    }

    /// Sets the gauges of the memory store.
    #[allow(clippy::cast_precision_loss)] // counts
    pub fn memory(&self, keys: usize, evicted: u64) {
        self.memory_keys.set(keys as f64);
        self.memory_evicted.absolute(evicted);
    }
}

/// Rendered here, because the exporter would keep a series for every hash that there ever was.
fn config_info(hash: &str) -> String {
    let about = "1, labelled with the hash of the limits in force";
    format!(
        "# HELP {CONFIG_INFO} {about}\n# TYPE {CONFIG_INFO} gauge\n{CONFIG_INFO}{{hash=\"{hash}\"}} 1\n\n"
    )
}

fn describe() {
    use metrics::{Unit::Seconds, describe_counter, describe_gauge, describe_histogram};
    describe_histogram!(DECISION_SECONDS, Seconds, "From a request's arrival to its decision");
    describe_histogram!(REDIS_SECONDS, Seconds, "Operations on Redis");
    describe_histogram!(RUN_REQUESTS, "Requests that one script run decides");
    process::describe();
    describe_gauge!(STORE_UP, "1 while the store decides, else 0");
    describe_counter!(STORE_ERRORS, "Decisions that the store could not make");
    describe_counter!(RELOADS, "Readings of the limits files, by what came of them");
    describe_gauge!(RELOADED_AT, Seconds, "When limits were last put in force, in Unix seconds");
    describe_gauge!(RELOADED_WELL, "1 while the newest limits are in force, 0 while refused");
    tls::describe();
    describe_counter!(SHED, "Calls and connections sent away for want of room, by reason");
    describe_gauge!(IN_FLIGHT, "Calls that are being decided");
    describe_gauge!(CONNECTIONS, "Connections on the gRPC port");
    describe_gauge!(MEMORY_KEYS, "Counters in memory: the store's, or the fallback's");
    describe_counter!(MEMORY_EVICTED, "Counters in force dropped at the bound on keys");
    describe_gauge!(BUILD_INFO, "1, labelled with the version");
}
