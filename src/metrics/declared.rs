//! The declaration of every metric: name, kind, unit and help, each in this file only.
//!
//! [`super::process`] adds metrics of the process, which a crate declares.

use metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

/// 50 µs to 1 s.
const LATENCIES: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0,
];

/// Requests per run: up to the default of `--store-batch-max`, and four times it.
const RUN_SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// A metric. Its kind is its type: [`Counts`], [`Level`] or [`Distribution`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric<K> {
    pub(super) name: &'static str,
    kind: K,
    unit: Unit,
    help: &'static str,
}

/// A counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts;

/// A gauge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level;

/// A histogram with the upper bounds of its buckets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distribution(&'static [f64]);

/// The histograms, whose buckets the exporter has to know first.
pub(super) const HISTOGRAMS: [Metric<Distribution>; 3] =
    [DECISION_SECONDS, REDIS_SECONDS, RUN_REQUESTS];

// Tidegate itself.

pub(super) const BUILD_INFO: Metric<Level> = Metric {
    name: "tidegate_build_info",
    kind: Level,
    unit: Unit::Count,
    help: "1, labeled with the version",
};

pub(super) const CONFIG_INFO: Metric<Level> = Metric {
    name: "rate_limit_config_info",
    kind: Level,
    unit: Unit::Count,
    help: "1, labeled with the hash of the limits in force",
};

// Requests and limits.

pub(super) const DECISIONS: Metric<Counts> = Metric {
    name: "rate_limit_decision_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Requests decided",
};

pub(super) const DECISION_SECONDS: Metric<Distribution> = Metric {
    name: "rate_limit_decision_duration_seconds",
    kind: Distribution(LATENCIES),
    unit: Unit::Seconds,
    help: "Time from the arrival of a request to its decision",
};

pub(super) const DECISIONS_FAILED: Metric<Counts> = Metric {
    name: "rate_limit_decision_failed_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Calls that ended without a decision, by reason",
};

pub(super) const CHECKS: Metric<Counts> = Metric {
    name: "rate_limit_check_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Checks of limits, by result",
};

pub(super) const NEAR_LIMIT: Metric<Counts> = Metric {
    name: "rate_limit_near_limit_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Checks that passed and left a fifth of the limit or less",
};

pub(super) const SERIES_DROPPED: Metric<Counts> = Metric {
    name: "rate_limit_metric_series_dropped_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Series of values that were dropped at --metric-max-series",
};

// The load.

pub(super) const SHED: Metric<Counts> = Metric {
    name: "rate_limit_shed_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Calls and connections refused to protect the others, by reason",
};

pub(super) const IN_FLIGHT: Metric<Level> = Metric {
    name: "rate_limit_in_flight",
    kind: Level,
    unit: Unit::Count,
    help: "Calls being decided",
};

pub(super) const CONNECTIONS: Metric<Level> = Metric {
    name: "rate_limit_connections",
    kind: Level,
    unit: Unit::Count,
    help: "Connections on the gRPC port",
};

// The store.

pub(super) const STORE_UP: Metric<Level> = Metric {
    name: "rate_limit_store_up",
    kind: Level,
    unit: Unit::Count,
    help: "1 while the store decides, else 0",
};

pub(super) const STORE_ERRORS: Metric<Counts> = Metric {
    name: "rate_limit_store_errors_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Decisions that the store could not make, by the kind of error",
};

pub(super) const REDIS_SECONDS: Metric<Distribution> = Metric {
    name: "redis_operation_duration_seconds",
    kind: Distribution(LATENCIES),
    unit: Unit::Seconds,
    help: "Duration of Redis operations",
};

pub(super) const RUN_REQUESTS: Metric<Distribution> = Metric {
    name: "rate_limit_store_run_requests",
    kind: Distribution(RUN_SIZES),
    unit: Unit::Count,
    help: "Requests that one script run decides",
};

pub(super) const MEMORY_KEYS: Metric<Level> = Metric {
    name: "rate_limit_memory_keys",
    kind: Level,
    unit: Unit::Count,
    help: "Counters in memory, of the memory store or the fallback",
};

pub(super) const MEMORY_EVICTED: Metric<Counts> = Metric {
    name: "rate_limit_memory_evicted_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Counters still in use that were evicted because memory was full",
};

pub(super) const FALLBACK_CHARGED: Metric<Counts> = Metric {
    name: "rate_limit_fallback_charged_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Hits admitted without the store that the store has counted since",
};

pub(super) const FALLBACK_REFUNDED: Metric<Counts> = Metric {
    name: "rate_limit_fallback_refunded_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Hits given back without the store that the store has given back since",
};

pub(super) const FALLBACK_LOST: Metric<Counts> = Metric {
    name: "rate_limit_fallback_lost_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Hits taken or given back without the store that it will never count",
};

// Limits files.

pub(super) const RELOADS: Metric<Counts> = Metric {
    name: "rate_limit_config_reload_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Loads of the limits files, by result",
};

pub(super) const RELOADED_AT: Metric<Level> = Metric {
    name: "rate_limit_config_last_reload_timestamp_seconds",
    kind: Level,
    unit: Unit::Seconds,
    help: "Unix time when limits last came into force, in seconds",
};

pub(super) const RELOADED_WELL: Metric<Level> = Metric {
    name: "rate_limit_config_last_reload_successful",
    kind: Level,
    unit: Unit::Count,
    help: "1 while the newest limits are in force, 0 while they are refused",
};

// TLS.

pub(super) const TLS_HANDSHAKES_FAILED: Metric<Counts> = Metric {
    name: "rate_limit_tls_handshakes_failed_total",
    kind: Counts,
    unit: Unit::Count,
    help: "TLS handshakes that failed",
};

pub(super) const TLS_RELOADS: Metric<Counts> = Metric {
    name: "rate_limit_tls_certificate_reload_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Loads of a port's certificates, by result",
};

pub(super) const TLS_RELOADED_WELL: Metric<Level> = Metric {
    name: "rate_limit_tls_certificate_last_reload_successful",
    kind: Level,
    unit: Unit::Count,
    help: "1 while a port's newest certificates are in force, 0 while they are refused",
};

pub(super) const TLS_NOT_BEFORE: Metric<Level> = Metric {
    name: "rate_limit_tls_certificate_not_before_seconds",
    kind: Level,
    unit: Unit::Seconds,
    help: "Unix time from which a port's certificates are valid, in seconds, of the one that expires first",
};

pub(super) const TLS_NOT_AFTER: Metric<Level> = Metric {
    name: "rate_limit_tls_certificate_not_after_seconds",
    kind: Level,
    unit: Unit::Seconds,
    help: "Unix time until which a port's certificates are valid, in seconds, of the one that expires first",
};

// Traces and logs.

pub(super) const SPANS: Metric<Counts> = Metric {
    name: "rate_limit_spans_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Spans of traces, by result",
};

pub(super) const DECISION_LOG_LINES: Metric<Counts> = Metric {
    name: "rate_limit_decision_log_lines_total",
    kind: Counts,
    unit: Unit::Count,
    help: "Lines of the decision log, by result",
};

impl Metric<Counts> {
    /// A series of the metric, in the current recorder.
    pub(super) fn series(&self, labels: &[(&'static str, &'static str)]) -> Counter {
        describe_counter!(self.name, self.unit, self.help);
        counter!(self.name, to_labels(labels))
    }

    /// The lines before its series in Prometheus's text format.
    pub(super) fn header(&self) -> String {
        header(self.name, "counter", self.help)
    }
}

impl Metric<Level> {
    /// A series of the metric, in the current recorder.
    pub(super) fn series(&self, labels: &[(&'static str, &'static str)]) -> Gauge {
        describe_gauge!(self.name, self.unit, self.help);
        gauge!(self.name, to_labels(labels))
    }

    /// The lines before its series in Prometheus's text format.
    pub(super) fn header(&self) -> String {
        header(self.name, "gauge", self.help)
    }
}

impl Metric<Distribution> {
    /// A series of the metric, in the current recorder.
    pub(super) fn series(&self, labels: &[(&'static str, &'static str)]) -> Histogram {
        describe_histogram!(self.name, self.unit, self.help);
        histogram!(self.name, to_labels(labels))
    }

    /// The upper bounds of the buckets.
    pub(super) const fn buckets(&self) -> &'static [f64] {
        self.kind.0
    }
}

fn to_labels(labels: &[(&'static str, &'static str)]) -> Vec<Label> {
    labels.iter().map(|(name, value)| Label::new(*name, *value)).collect()
}

fn header(name: &str, kind: &str, help: &str) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")
}
