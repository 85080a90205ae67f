//! Why a request gets no decision.

use std::fmt;

use crate::request::RequestError;
use crate::store_error::StoreError;

/// Why a request gets no decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecideError {
    /// The request is invalid.
    Request(RequestError),
    /// The store could not decide.
    Store(StoreError),
    /// Too many calls are being decided.
    Overloaded,
}

impl DecideError {
    /// A short name: `request`, `overloaded`, or the kind of the store's error.
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
