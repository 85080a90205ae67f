//! What a decision needs to know beside its counters.

use std::sync::Arc;

use crate::trace::Parent;

/// When a decision is made, and the trace that it belongs to.
#[derive(Clone, Debug, Default)]
pub struct DecideContext {
    /// The moment of a replay; otherwise the store uses its own clock.
    pub at_ms: Option<u64>,
    /// The parent of the spans of script runs.
    pub span: Option<Arc<Parent>>,
    /// Whether requests of the same domain may be decided on several servers, which give hits back
    /// when one of them rejects.
    pub spreads: bool,
}

impl DecideContext {
    /// Now.
    pub const fn now() -> Self {
        Self { at_ms: None, span: None, spreads: false }
    }

    /// In a replay.
    pub const fn at(at_ms: u64) -> Self {
        Self { at_ms: Some(at_ms), span: None, spreads: false }
    }

    /// Now, in a call that is traced.
    pub const fn traced(span: Arc<Parent>) -> Self {
        Self { at_ms: None, span: Some(span), spreads: false }
    }

    /// The same, for a request of a domain that does or does not [spread](Self::spreads).
    #[must_use]
    pub fn spreading(self, spreads: bool) -> Self {
        Self { spreads, ..self }
    }
}
