//! The errors of a store that could not decide.
//!
//! Errors are parsed once, where they enter: an error reply of Redis by [`RedisError::parse`], an
//! error of the client library in `store/redis/fred_error.rs`. After that, no code searches their
//! text. The fallback checks whether hits may have been taken, a node whether to retry or to
//! reconnect, and the metrics use the label. The text is kept for the log only.
//!
//! There are three cases for the caller:
//! - not sent: no hits were taken ([`StoreError::Unavailable`], [`StoreError::Clustered`]);
//! - sent, outcome unknown: the hits may be taken ([`StoreError::Timeout`], [`StoreError::Lost`],
//!   [`StoreError::BadReply`]);
//! - answered with an error: its [`Code`] shows which of the two holds ([`StoreError::Answered`]).

use std::fmt;

mod redis;

pub use redis::{Address, Code, Denied, RedisError, readable};

/// The store could not decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The store cannot be reached, so nothing was sent and nothing was taken.
    Unavailable(String),
    /// `--store` names a node of a cluster as a single server: nothing was taken.
    Clustered,
    /// No answer in time: the hits may be taken.
    Timeout,
    /// The connection broke before the answer came: the hits may be taken.
    Lost(String),
    /// The answer cannot be read: the hits may be taken.
    BadReply(String),
    /// Redis answered with an error.
    Answered(RedisError),
}

/// The details of [`StoreError::Clustered`].
const CLUSTERED: &str =
    "is a node of a Redis Cluster: use redis-cluster:// (or rediss-cluster://) in --store";

impl StoreError {
    /// All values of the metric label `kind`.
    pub const KINDS: [&'static str; 19] = [
        "timeout",
        "unavailable",
        "lost",
        "refused",
        "wrong_type",
        "bad_reply",
        "clustered",
        "oom",
        "readonly",
        "noperm",
        "noauth",
        "loading",
        "masterdown",
        "clusterdown",
        "tryagain",
        "moved",
        "misconf",
        "noreplicas",
        "busy",
    ];

    /// The value of the metric label `kind`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unavailable(_) => "unavailable",
            Self::Lost(_) => "lost",
            Self::BadReply(_) => "bad_reply",
            Self::Clustered => "clustered",
            Self::Answered(error) => error.code.kind(),
        }
    }

    /// The details beyond the kind.
    pub(crate) fn details(&self) -> &str {
        match self {
            Self::Timeout => "no answer in time",
            Self::Clustered => CLUSTERED,
            Self::Unavailable(details) | Self::Lost(details) | Self::BadReply(details) => details,
            Self::Answered(error) => &error.message,
        }
    }

    /// The code of the error, if Redis answered with one.
    pub const fn code(&self) -> Option<&Code> {
        match self {
            Self::Answered(error) => Some(&error.code),
            Self::Timeout
            | Self::Unavailable(_)
            | Self::Lost(_)
            | Self::BadReply(_)
            | Self::Clustered => None,
        }
    }

    /// Whether the hits may have been taken although the store returned an error.
    pub fn may_have_taken(&self) -> bool {
        match self {
            Self::Timeout | Self::Lost(_) | Self::BadReply(_) => true,
            Self::Unavailable(_) | Self::Clustered => false,
            Self::Answered(error) => error.code.may_have_taken(),
        }
    }

    /// Whether a single request of a script run may be the cause. If so, the run wrote nothing, and
    /// its requests can be decided in separate runs.
    pub fn may_concern_one_request(&self) -> bool {
        self.code().is_some_and(Code::may_concern_one_request)
    }

    /// Whether the server is a replica, so that another one is the primary.
    pub fn is_of_a_replica(&self) -> bool {
        matches!(self.code(), Some(Code::ReadOnly | Code::MasterDown))
    }

    /// Whether only a node of a cluster returns this error.
    pub fn is_of_a_cluster_node(&self) -> bool {
        self.code().is_some_and(|code| code.is_redirect() || *code == Code::CrossSlot)
    }

    /// Whether the server refuses decisions that write, rather than sending this one elsewhere or
    /// failing on the value of a key.
    pub fn is_refusal(&self) -> bool {
        self.code().is_some_and(|code| !code.is_redirect() && *code != Code::WrongType)
    }

    /// Whether the server as a whole cannot decide for a while.
    pub fn is_of_the_server(&self) -> bool {
        match self {
            Self::Timeout | Self::Unavailable(_) | Self::Lost(_) => true,
            Self::BadReply(_) | Self::Clustered => false,
            Self::Answered(error) => error.code.is_of_the_server(),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the store did not answer in time"),
            Self::Unavailable(why) => write!(f, "the store cannot be reached: {why}"),
            Self::Lost(why) => write!(f, "the connection to the store broke: {why}"),
            Self::BadReply(what) => write!(f, "the store's answer cannot be read: {what}"),
            Self::Clustered => write!(f, "the store {CLUSTERED}"),
            Self::Answered(RedisError { code: Code::WrongType, message }) => {
                write!(f, "a key does not hold a counter: {message}")
            }
            Self::Answered(error) => write!(f, "the store refused: {}", error.message),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        Self::Answered(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_every_error_is_among_all_kinds() {
        let own = [
            StoreError::Unavailable(String::new()),
            StoreError::Clustered,
            StoreError::Timeout,
            StoreError::Lost(String::new()),
            StoreError::BadReply(String::new()),
        ];
        let codes = Code::EXAMPLES.map(|code| RedisError { code, message: String::new() }.into());
        let mut kinds: Vec<_> = own.iter().chain(&codes).map(StoreError::kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut all = StoreError::KINDS;
        all.sort_unstable();
        assert_eq!(kinds, all);
    }
}
