//! Errors of calls: a code and a message for people, and google.rpc details for programs.
//!
//! Every error has an `ErrorInfo` of this domain, whose reason is more specific than the code. A
//! mistake of the caller has a `BadRequest` with its field, and an error that passes has a
//! `RetryInfo`. Those of tonic's own services, health and reflection, have none.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::request::RequestError;
use crate::service::DecideError;
use crate::store_error::StoreError;

/// The domain of every `ErrorInfo`.
const DOMAIN: &str = "tidegate";

/// When to call again while there are too many calls: they are there for milliseconds.
const OVERLOAD_RETRY: Duration = Duration::from_millis(100);

/// When to call again while the store cannot decide: a lost server is asked twice a second.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A field is missing, out of bounds or malformed.
    InvalidRequest,
    /// The store did not answer in time.
    StoreTimeout,
    /// The store cannot decide.
    StoreUnavailable,
    /// Too many calls.
    Overloaded,
    /// The message is longer than the maximum.
    MessageTooLong,
    /// The message did not arrive in time.
    MessageTooSlow,
    /// The body is not one message.
    MalformedCall,
    /// The time that the caller gave is over.
    DeadlineExceeded,
    /// No such method, or a feature of gRPC that is not supported.
    NotSupported,
    /// The descriptors match no limit.
    NoLimit,
}

impl Reason {
    /// The reason in `ErrorInfo`.
    const fn name(self) -> &'static str {
        match self {
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::StoreTimeout => "STORE_TIMEOUT",
            Self::StoreUnavailable => "STORE_UNAVAILABLE",
            Self::Overloaded => "OVERLOADED",
            Self::MessageTooLong => "MESSAGE_TOO_LONG",
            Self::MessageTooSlow => "MESSAGE_TOO_SLOW",
            Self::MalformedCall => "MALFORMED_CALL",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotSupported => "NOT_SUPPORTED",
            Self::NoLimit => "NO_LIMIT",
        }
    }

    const fn code(self) -> Code {
        match self {
            Self::InvalidRequest => Code::InvalidArgument,
            Self::StoreTimeout | Self::StoreUnavailable => Code::Unavailable,
            Self::Overloaded => Code::ResourceExhausted,
            Self::MessageTooLong => Code::OutOfRange,
            Self::MessageTooSlow | Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::MalformedCall => Code::Internal,
            Self::NotSupported => Code::Unimplemented,
            Self::NoLimit => Code::NotFound,
        }
    }

    const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Overloaded => Some(OVERLOAD_RETRY),
            Self::StoreTimeout | Self::StoreUnavailable => Some(STORE_RETRY),
            Self::InvalidRequest
            | Self::MessageTooLong
            | Self::MessageTooSlow
            | Self::MalformedCall
            | Self::DeadlineExceeded
            | Self::NotSupported
            | Self::NoLimit => None,
        }
    }

    fn details(self) -> ErrorDetails {
        let mut details = ErrorDetails::with_error_info(self.name(), DOMAIN, []);
        if let Some(wait) = self.retry_after() {
            details.set_retry_info(Some(wait));
        }
        details
    }
}

/// Refuses a call.
pub(crate) fn refuse(reason: Reason, message: impl Into<String>) -> Status {
    Status::with_error_details(reason.code(), message, reason.details())
}

/// Refuses a call whose request has a mistake.
pub(crate) fn refuse_request(error: &RequestError) -> Status {
    let reason = Reason::InvalidRequest;
    let mut details = reason.details();
    details.add_bad_request_violation(&error.field, &error.message);
    Status::with_error_details(reason.code(), error.to_string(), details)
}

/// Refuses a call that got no decision.
pub(crate) fn refuse_undecided(error: &DecideError) -> Status {
    match error {
        DecideError::Request(error) => refuse_request(error),
        DecideError::Overloaded => refuse(Reason::Overloaded, error.to_string()),
        DecideError::Store(StoreError::Timeout) => {
            refuse(Reason::StoreTimeout, "the store did not answer in time")
        }
        // The store's own words may contain host names and keys. They go to the log only.
        DecideError::Store(
            StoreError::Unavailable(_)
            | StoreError::Lost(_)
            | StoreError::BadReply(_)
            | StoreError::Answered(_)
            | StoreError::Clustered,
        ) => refuse(Reason::StoreUnavailable, "the store cannot decide; the server's log says why"),
    }
}
