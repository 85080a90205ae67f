//! Every metric, in one table. Handles are made when rules load: no label comes from traffic,
//! and counting costs no lookup.

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use crate::rules::{Domain, RuleSet};
use crate::store::{Source, StoreError};

const CHECKS: &str = "rate_limit_check_total";
const DECISIONS: &str = "rate_limit_decision_total";
const DECISION_SECONDS: &str = "rate_limit_decision_duration_seconds";
const REDIS_SECONDS: &str = "redis_operation_duration_seconds";
const STORE_UP: &str = "rate_limit_store_up";
const STORE_ERRORS: &str = "rate_limit_store_errors_total";
const RELOADS: &str = "rate_limit_config_reload_total";
const RELOADED_AT: &str = "rate_limit_config_last_reload_timestamp_seconds";
const MEMORY_KEYS: &str = "rate_limit_memory_keys";
const MEMORY_EVICTED: &str = "rate_limit_memory_evicted_total";
const BUILD_INFO: &str = "tidegate_build_info";

/// 50 µs to 1 s.
const BUCKETS: [f64; 14] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0,
];

/// Where everything is counted.
#[derive(Clone)]
pub struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    /// From a request's arrival in the service to its decision.
    pub decision_seconds: Histogram,
    /// One script run.
    pub evalsha_seconds: Histogram,
    /// Whether the store decides.
    pub store_up: Gauge,
    errors: Vec<(&'static str, Counter)>,
    reload_accepted: Counter,
    reloaded_at: Gauge,
    memory_keys: Gauge,
    memory_evicted: Counter,
}

/// The handles of one rule set.
pub struct RuleMetrics {
    limits: Vec<[Counter; 3]>,
    /// By the domain's id.
    domains: Vec<DomainMetrics>,
    unknown: DomainMetrics,
}

/// The handles of one domain.
struct DomainMetrics {
    /// Allowed and rejected, by source.
    decisions: [[Counter; 2]; Source::ALL.len()],
    overrides: [Counter; 3],
}

/// What came of one limit's test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The hits fit.
    Allowed = 0,
    /// They do not, and the request is rejected for it.
    Rejected = 1,
    /// They do not, and the rule only reports.
    ShadowRejected = 2,
}

impl Metrics {
    /// A recorder of its own, so that several services in one process do not meet.
    ///
    /// # Errors
    /// The buckets are not acceptable to the exporter.
    pub fn new() -> Result<Self, BuildError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)?
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
                store_up: gauge!(STORE_UP),
                errors: StoreError::kinds().map(error).collect(),
                reload_accepted: counter!(RELOADS, "result" => "accepted"),
                reloaded_at: gauge!(RELOADED_AT),
                memory_keys: gauge!(MEMORY_KEYS),
                memory_evicted: counter!(MEMORY_EVICTED),
                recorder: Arc::clone(&recorder),
            }
        });
        Ok(metrics)
    }

    /// The text that Prometheus scrapes.
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Keeps histograms small; to be called every few seconds.
    pub fn run_upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// The handles of a rule set.
    pub fn of_rules(&self, rules: &RuleSet) -> RuleMetrics {
        with_local_recorder(&*self.recorder, || RuleMetrics::new(rules))
    }

    /// Counts a decision that the store could not make.
    pub fn count_store_error(&self, error: &StoreError) {
        let found = self.errors.iter().find(|(kind, _)| *kind == error.kind());
        if let Some((_, counter)) = found {
            counter.increment(1);
        }
    }

    /// Notes that limits were loaded.
    #[allow(clippy::cast_precision_loss)] // seconds
    pub fn loaded(&self, now_ms: u64) {
        self.reload_accepted.increment(1);
        self.reloaded_at.set((now_ms / 1_000) as f64);
    }

    /// Notes how full the memory store is.
    #[allow(clippy::cast_precision_loss)] // counts
    pub fn memory(&self, keys: usize, evicted: u64) {
        self.memory_keys.set(keys as f64);
        self.memory_evicted.absolute(evicted);
    }
}

fn describe() {
    use metrics::{Unit::Seconds, describe_counter, describe_gauge, describe_histogram};
    describe_counter!(CHECKS, "Limits checked, by what came of it");
    describe_counter!(DECISIONS, "Requests decided");
    describe_histogram!(DECISION_SECONDS, Seconds, "From a request's arrival to its decision");
    describe_histogram!(REDIS_SECONDS, Seconds, "Operations on Redis");
    describe_gauge!(STORE_UP, "1 while the store decides, else 0");
    describe_counter!(STORE_ERRORS, "Decisions that the store could not make");
    describe_counter!(RELOADS, "Loads of the limits files");
    describe_gauge!(RELOADED_AT, Seconds, "When limits were last loaded, in Unix seconds");
    describe_gauge!(MEMORY_KEYS, "Counters in the memory store");
    describe_counter!(MEMORY_EVICTED, "Counters in force dropped at the bound on keys");
    describe_gauge!(BUILD_INFO, "1, labelled with the version");
}

fn check_counters(domain: &str, dimension: &str) -> [Counter; 3] {
    ["allowed", "rejected", "shadow_rejected"].map(|result| {
        let (domain, dimension) = (domain.to_owned(), dimension.to_owned());
        counter!(CHECKS, "domain" => domain, "dimension" => dimension, "result" => result)
    })
}

impl DomainMetrics {
    fn new(domain: &str) -> Self {
        let decisions = |source: Source| {
            ["allowed", "rejected"].map(|decision| {
                let domain = domain.to_owned();
                let source = source.name();
                counter!(DECISIONS, "domain" => domain, "decision" => decision, "source" => source)
            })
        };
        Self {
            decisions: Source::ALL.map(decisions),
            overrides: check_counters(domain, "override"),
        }
    }
}

impl RuleMetrics {
    fn new(rules: &RuleSet) -> Self {
        let mut limits: Vec<Option<[Counter; 3]>> = Vec::new();
        limits.resize_with(rules.limits_count(), || None);
        let mut domains = Vec::new();
        for domain in rules.domains() {
            domains.push(DomainMetrics::new(domain.name()));
            for rule in domain.rules() {
                let named = rule.limits().iter().map(|limit| (limit.id(), limit.name()));
                let unlimited = rule.unlimited().map(|rule| (rule.id(), rule.name()));
                for (id, name) in named.chain(unlimited) {
                    limits[id] = Some(check_counters(domain.name(), name));
                }
            }
        }
        let noop = || [Counter::noop(), Counter::noop(), Counter::noop()];
        let limits = limits.into_iter().map(|counters| counters.unwrap_or_else(noop)).collect();
        Self { limits, domains, unknown: DomainMetrics::new("unknown") }
    }

    fn domain(&self, domain: Option<&Domain>) -> &DomainMetrics {
        domain.map_or(&self.unknown, |domain| &self.domains[domain.id()])
    }

    /// Counts the test of a rule's limit, by the id that the rule set gave it.
    pub fn count_check(&self, id: usize, result: CheckResult) {
        self.limits[id][result as usize].increment(1);
    }

    /// Counts the test of a limit that a request brought.
    pub fn count_override(&self, domain: &Domain, result: CheckResult) {
        self.domain(Some(domain)).overrides[result as usize].increment(1);
    }

    /// Counts a decision.
    pub fn count_decision(&self, domain: Option<&Domain>, allowed: bool, source: Source) {
        let decisions = &self.domain(domain).decisions[source as usize];
        decisions[usize::from(!allowed)].increment(1);
    }
}
