//! Counters with a few fixed series each.

use metrics::Counter;

use super::declared::{
    DECISION_LOG_LINES, DECISIONS_FAILED, FALLBACK_CHARGED, FALLBACK_LOST, FALLBACK_REFUNDED, SPANS,
};

/// Calls that ended without a decision.
#[derive(Clone, Debug)]
pub struct Failures {
    /// The caller sent an invalid request.
    pub request: Counter,
    /// The store could not decide, and no fallback is configured.
    pub store: Counter,
}

/// Hits that were taken or given back without the store, after reconciliation.
#[derive(Clone, Debug)]
pub struct Reconciled {
    /// Counted by the store.
    pub taken: Counter,
    /// Given back by the store.
    pub refunded: Counter,
    /// Never counted by the store.
    pub lost: Counter,
}

/// Spans of traces, by result.
#[derive(Clone, Debug)]
pub struct SpanCounts {
    /// Received by the collector.
    pub exported: Counter,
    /// The collector could not be reached, or refused them.
    pub failed: Counter,
    /// The queue was full.
    pub dropped: Counter,
}

/// Lines of the decision log, by result.
#[derive(Clone, Debug)]
pub struct LogLines {
    /// Written.
    pub written: Counter,
    /// Not made, because the limit per second was reached.
    pub over_rate: Counter,
    /// Made, but the queue was full or writing failed.
    pub lost: Counter,
}

impl Failures {
    pub(super) fn new() -> Self {
        let [request, store] =
            ["request", "store"].map(|reason| DECISIONS_FAILED.series(&[("reason", reason)]));
        Self { request, store }
    }
}

impl Reconciled {
    pub(super) fn new() -> Self {
        Self {
            taken: FALLBACK_CHARGED.series(&[]),
            refunded: FALLBACK_REFUNDED.series(&[]),
            lost: FALLBACK_LOST.series(&[]),
        }
    }
}

impl SpanCounts {
    pub(super) fn new() -> Self {
        let [exported, failed, dropped] =
            ["exported", "failed", "dropped"].map(|result| SPANS.series(&[("result", result)]));
        Self { exported, failed, dropped }
    }
}

impl LogLines {
    pub(super) fn new() -> Self {
        let [written, over_rate, lost] = ["written", "over_rate", "lost"]
            .map(|result| DECISION_LOG_LINES.series(&[("result", result)]));
        Self { written, over_rate, lost }
    }
}
