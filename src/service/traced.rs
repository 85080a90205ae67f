//! Adds a decision to the span of its call: domains and rules of the limits files, and no values of
//! the request.

use opentelemetry::{Array, StringValue, Value};

use super::answer::Answer;
use crate::trace::CallSpan;

/// Rules listed in a span, at most.
const RULES_MAX: usize = 32;

impl Answer<'_> {
    /// Sets the attributes of the span from this answer.
    pub fn annotate(&self, span: &CallSpan) {
        span.set("tidegate.domain", self.domain.map_or("unknown", |d| d.name()).to_owned());
        span.set("tidegate.decision", if self.allowed { "allowed" } else { "rejected" });
        span.set("tidegate.source", self.source.name());
        span.set("tidegate.limits", i64::try_from(self.limits.len()).unwrap_or(i64::MAX));
        let rules = self.rejected_by(RULES_MAX).map(|rule| StringValue::from(rule.to_owned()));
        span.set("tidegate.rejected_by", Value::Array(Array::String(rules.collect())));
    }
}
