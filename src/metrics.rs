//! The metrics of the process. `declared` has the declaration of each.
//!
//! Handles are made when rules load, so that counting costs no lookup and no label comes from
//! traffic, except where a rule asks for it ([`checks`]).

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, with_local_recorder};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use parking_lot::Mutex;

pub mod checks;
mod configured;
mod counts;
mod decisions;
mod declared;
mod process;
mod rules;
mod tls;
pub mod top;

use checks::Checks;
pub use counts::{Failures, LogLines, Reconciled, SpanCounts};
use decisions::Decisions;
use declared::{
    BUILD_INFO, CONFIG_INFO, CONNECTIONS, DECISION_SECONDS, HISTOGRAMS, IN_FLIGHT, MEMORY_EVICTED,
    MEMORY_KEYS, Metric, REDIS_SECONDS, RELOADED_AT, RELOADED_WELL, RELOADS, RUN_REQUESTS, SHED,
    STORE_ERRORS, STORE_UP,
};
pub(crate) use rules::OVERRIDE;
pub use rules::{RuleMetrics, RuleNames};
pub use tls::TlsMetrics;
use top::Top;

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
        let mut builder = PrometheusBuilder::new();
        for metric in HISTOGRAMS {
            let matcher = Matcher::Full(metric.name.to_owned());
            builder = builder.set_buckets_for_metric(matcher, metric.buckets())?;
        }
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        let recorder = Arc::new(recorder);
        let metrics = with_local_recorder(&*recorder, || {
            process::describe();
            BUILD_INFO.series(&[("version", env!("CARGO_PKG_VERSION"))]).set(1.0);
            let error = |kind| (kind, STORE_ERRORS.series(&[("kind", kind)]));
            Self {
                handle,
                decision_seconds: DECISION_SECONDS.series(&[]),
                evalsha_seconds: REDIS_SECONDS.series(&[("operation", "evalsha")]),
                run_requests: RUN_REQUESTS.series(&[]),
                store_up: STORE_UP.series(&[]),
                errors: store_error_kinds.iter().copied().map(error).collect(),
                config: Arc::default(),
                reloads: RELOADS.series(&[("result", "success")]),
                reloads_refused: RELOADS.series(&[("result", "failure")]),
                reloaded_at: RELOADED_AT.series(&[]),
                reloaded_well: RELOADED_WELL.series(&[]),
                shed: Shed::ALL.map(|shed| SHED.series(&[("reason", shed.name())])),
                in_flight: IN_FLIGHT.series(&[]),
                connections: CONNECTIONS.series(&[]),
                memory_keys: MEMORY_KEYS.series(&[]),
                memory_evicted: MEMORY_EVICTED.series(&[]),
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

/// Rendered here, because the exporter would keep a series for every hash that was ever in force.
fn config_info(hash: &str) -> String {
    let Metric { name, .. } = CONFIG_INFO;
    format!("{}{name}{{hash=\"{hash}\"}} 1\n\n", CONFIG_INFO.header())
}
