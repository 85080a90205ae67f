//! Counters of one thing by what became of it.

use metrics::{Counter, counter, describe_counter};

const FAILED: &str = "rate_limit_decision_failed_total";
const CHARGED: &str = "rate_limit_fallback_charged_total";
const REFUNDED: &str = "rate_limit_fallback_refunded_total";
const LOST: &str = "rate_limit_fallback_lost_total";
const SPANS: &str = "rate_limit_spans_total";
const DECISION_LOG: &str = "rate_limit_decision_log_lines_total";

/// Calls that ended without a decision.
#[derive(Clone, Debug)]
pub struct Failures {
    /// What the caller sent is no request.
    pub request: Counter,
    /// The store could not decide, and nothing was to decide in its place.
    pub store: Counter,
}

/// Hits that were taken or given back without the store, once it is back.
#[derive(Clone, Debug)]
pub struct Reconciled {
    /// It has counted them.
    pub taken: Counter,
    /// It has given them back.
    pub refunded: Counter,
    /// It never will.
    pub lost: Counter,
}

/// What became of spans.
#[derive(Clone, Debug)]
pub struct SpanCounts {
    /// The collector has them.
    pub exported: Counter,
    /// It could not be reached, or refused them.
    pub failed: Counter,
    /// Too many waited to be sent.
    pub dropped: Counter,
}

/// What became of lines of the decision log.
#[derive(Clone, Debug)]
pub struct LogLines {
    /// Written.
    pub written: Counter,
    /// Not made, for there were enough in that second.
    pub over_rate: Counter,
    /// Made, and too many for whoever reads them, or not to be written.
    pub lost: Counter,
}

impl Failures {
    pub(super) fn new() -> Self {
        describe_counter!(FAILED, "Calls that ended without a decision, by why");
        let [request, store] = ["request", "store"].map(|why| counter!(FAILED, "reason" => why));
        Self { request, store }
    }
}

impl Reconciled {
    pub(super) fn new() -> Self {
        describe_counter!(CHARGED, "Hits admitted without the store that it was charged with");
        describe_counter!(REFUNDED, "Hits given back without the store that it has given back too");
        describe_counter!(LOST, "Hits taken or given back without the store that it never counts");
        Self { taken: counter!(CHARGED), refunded: counter!(REFUNDED), lost: counter!(LOST) }
    }
}

impl SpanCounts {
    pub(super) fn new() -> Self {
        describe_counter!(SPANS, "Spans of traces, by what became of them");
        let [exported, failed, dropped] =
            ["exported", "failed", "dropped"].map(|result| counter!(SPANS, "result" => result));
        Self { exported, failed, dropped }
    }
}

impl LogLines {
    pub(super) fn new() -> Self {
        describe_counter!(DECISION_LOG, "Lines of the decision log, by what became of them");
        let [written, over_rate, lost] = ["written", "over_rate", "lost"]
            .map(|result| counter!(DECISION_LOG, "result" => result));
        Self { written, over_rate, lost }
    }
}
