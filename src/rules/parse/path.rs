//! How the levels of a path affect the keys and the metrics of the rule at its end.

use crate::rules::rule::Segment;

/// One level of a path.
#[derive(Clone)]
pub(super) struct Step {
    key: Box<str>,
    /// As configured: a value, a wildcard, or empty for any value.
    value: Box<str>,
    options: Options,
}

/// The options of a level.
#[derive(Clone, Copy)]
pub(super) struct Options {
    /// All values of its wildcard share one counter.
    pub(super) shares: bool,
    /// Values from requests appear in metrics.
    pub(super) value_to_metric: bool,
    /// Values are only shown as their hash.
    pub(super) hashes: bool,
}

impl Step {
    pub(super) fn new(key: &str, value: &str, options: Options) -> Self {
        Self { key: key.into(), value: value.into(), options }
    }

    /// Whether requests have different values at this level, each with its own counters.
    fn varies(&self) -> bool {
        (self.value.is_empty() || self.value.contains('*')) && !self.options.shares
    }
}

/// By level, the wildcard that replaces all values; empty if there is none.
pub(super) fn shared(steps: &[Step]) -> Box<[Option<Box<str>>]> {
    let depth = steps.iter().rposition(|step| step.options.shares).map_or(0, |last| last + 1);
    let pattern = |step: &Step| step.options.shares.then(|| step.value.clone());
    steps[..depth].iter().map(pattern).collect()
}

/// By level, whether values are only shown as their hash; empty if none are.
pub(super) fn hashes(steps: &[Step]) -> Box<[bool]> {
    let depth = steps.iter().rposition(|step| step.options.hashes).map_or(0, |last| last + 1);
    steps[..depth].iter().map(|step| step.options.hashes).collect()
}

/// The path for metrics if it contains values; otherwise empty, and the rule's path is used.
pub(super) fn segments(steps: &[Step], detailed: bool) -> Box<[Segment]> {
    let tells = |step: &Step| step.varies() && (detailed || step.options.value_to_metric);
    if !steps.iter().any(tells) {
        return Box::default();
    }
    let segment = |step: &Step| {
        if tells(step) {
            let named = if step.options.hashes { Segment::Hash } else { Segment::Value };
            named(step.key.clone())
        } else if step.value.is_empty() {
            Segment::Configured(step.key.clone())
        } else {
            Segment::Configured(format!("{}={}", step.key, step.value).into())
        }
    };
    steps.iter().map(segment).collect()
}
