//! Why a request gets no decision.

use std::fmt;

use crate::request::RequestError;
use crate::store::StoreError;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecideError {
    /// The caller's fault.
    Request(RequestError),
    /// The store's.
    Store(StoreError),
    /// As many calls are being decided as may be at once.
    Overloaded,
}

impl DecideError {
    /// One word of few: `request`, `overloaded`, or the kind of the store's error.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::Store(error) => error.kind(),
            Self::Overloaded => "overloaded",
        }
    }
}

impl fmt::Display for DecideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Overloaded => f.write_str("more calls than --max-in-flight; call again later"),
        }
    }
}
