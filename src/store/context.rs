//! The context of a decision: its moment, its trace, and whether its domain spreads over several
//! servers.

use std::sync::Arc;

use crate::trace::Parent;

/// The context of a decision, apart from its counters.
#[derive(Clone, Debug, Default)]
pub struct DecideContext {
    /// The moment of a replay, in milliseconds. `None`: the store uses its own clock.
    pub at_ms: Option<u64>,
    /// The parent of the spans of script runs.
    pub span: Option<Arc<Parent>>,
    /// Whether requests of the same domain may be decided on several servers. These refund hits
    /// when one of them rejects the request.
    pub spreads: bool,
}

impl DecideContext {
    /// A decision now.
    pub const fn now() -> Self {
        Self { at_ms: None, span: None, spreads: false }
    }

    /// A decision in a replay.
    pub const fn at(at_ms: u64) -> Self {
        Self { at_ms: Some(at_ms), span: None, spreads: false }
    }

    /// A decision now, in a call that is traced.
    pub const fn traced(span: Arc<Parent>) -> Self {
        Self { at_ms: None, span: Some(span), spreads: false }
    }

    /// The same context, for a domain that does or does not [spread](Self::spreads).
    #[must_use]
    pub fn spreading(self, spreads: bool) -> Self {
        Self { spreads, ..self }
    }
}
