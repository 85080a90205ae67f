//! Where counters live. A store decides a request's asks at once: it tests every limit, then
//! takes from all or from none.

pub mod fallback;
pub mod memory;
pub mod redis;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::decide::CounterRequest;
use crate::decision::Decision;
use crate::rules::OnStoreFailure;
use crate::trace::Parent;
use memory::MemoryStore;
use redis::RedisStore;

/// The store could not decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// It did not answer in time: the hits may have been taken.
    Timeout,
    /// It cannot be reached, so nothing was sent: nothing was taken.
    Unavailable(String),
    /// The connection broke before the answer came: the hits may have been taken.
    Lost(String),
    /// It answered with an error: nothing was taken, but see [`StoreError::may_have_taken`].
    Refused(String),
    /// A key holds what is no state: nothing was taken.
    WrongType(String),
    /// Its answer could not be read: the hits may have been taken.
    BadReply(String),
    /// `--store` names a node of a cluster as if it were a server by itself: nothing was taken.
    Clustered,
}

/// What is wrong with `--store` where it names a node of a cluster by itself.
const CLUSTERED: &str =
    "is a node of a Redis Cluster: use redis-cluster:// (or rediss-cluster://) in --store";

/// Values of the metric label `kind` that are not Redis's words.
const OWN_KINDS: [&str; 7] =
    ["timeout", "unavailable", "lost", "refused", "broken", "garbled", "clustered"];

/// What Redis says in an error, mostly at its start, and the value of the metric label `kind` for it.
const CODES: [(&str, &str); 16] = [
    ("OOM", "oom"),
    ("READONLY", "readonly"),
    ("NOPERM", "noperm"),
    // In a script: of Redis 6.2 and 7.0 the first two, of later ones and Valkey the third.
    ("can't run this command", "noperm"),
    ("can't access at least one of the keys", "noperm"),
    ("ACL failure in script", "noperm"),
    ("NOAUTH", "noauth"),
    ("WRONGPASS", "noauth"),
    ("LOADING", "loading"),
    ("MASTERDOWN", "masterdown"),
    ("CLUSTERDOWN", "clusterdown"),
    ("TRYAGAIN", "tryagain"),
    ("MOVED", "moved"),
    ("MISCONF", "misconf"),
    ("NOREPLICAS", "noreplicas"),
    ("BUSY", "busy"),
];

impl StoreError {
    /// All values of the metric label `kind`.
    pub fn kinds() -> impl Iterator<Item = &'static str> {
        OWN_KINDS.into_iter().chain(CODES.into_iter().map(|(_, kind)| kind))
    }

    /// The error that Redis answered with.
    pub(crate) fn of_redis(details: String) -> Self {
        let of_the_server = CODES.iter().any(|(code, _)| details.contains(code));
        // Redis 6.2 wraps what a script met in the same words, whatever it is.
        let in_the_script = details.contains("WRONGTYPE") || details.contains("user_script");
        if in_the_script && !of_the_server {
            Self::WrongType(details)
        } else {
            Self::Refused(details)
        }
    }

    /// The value of the metric label `kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unavailable(_) => "unavailable",
            Self::Lost(_) => "lost",
            Self::Refused(why) => {
                let code = CODES.iter().find(|(code, _)| why.contains(code));
                code.map_or("refused", |(_, kind)| kind)
            }
            Self::WrongType(_) => "broken",
            Self::BadReply(_) => "garbled",
            Self::Clustered => "clustered",
        }
    }

    /// What is known beyond the kind.
    pub(crate) fn details(&self) -> &str {
        match self {
            Self::Timeout => "no answer in time",
            Self::Clustered => CLUSTERED,
            Self::Unavailable(details)
            | Self::Lost(details)
            | Self::Refused(details)
            | Self::WrongType(details)
            | Self::BadReply(details) => details,
        }
    }

    /// Whether Redis answered with an error.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Whether the hits may have been taken all the same.
    pub fn may_have_taken(&self) -> bool {
        match self {
            Self::Timeout | Self::Lost(_) | Self::BadReply(_) => true,
            // The client closes a connection that said the first, and every run under way there gets it.
            // The second may be of any of the commands of a run, and those before it have written.
            Self::Refused(_) => matches!(self.kind(), "clusterdown" | "noperm"),
            Self::Unavailable(_) | Self::WrongType(_) | Self::Clustered => false,
        }
    }

    /// Whether the cause may be a single request of a script run. Then the run wrote nothing, and its
    /// other requests can be decided by themselves.
    pub fn may_concern_one_request(&self) -> bool {
        match self {
            Self::WrongType(_) => true,
            Self::Refused(why) => match self.kind() {
                // They come at the first write, which a rejected request does not make. What a server
                // lacks then, it lacks from the start of a run to its end.
                "oom" | "misconf" | "noreplicas" => true,
                // The keys of a run are checked before it starts. The commands of its script are
                // checked one by one, when earlier ones may have written.
                "noperm" => why.starts_with("NOPERM") && why.contains(" access "),
                _ => false,
            },
            Self::Timeout
            | Self::Unavailable(_)
            | Self::Lost(_)
            | Self::BadReply(_)
            | Self::Clustered => false,
        }
    }

    /// Whether the server is a replica: the primary is another one.
    pub fn is_of_a_replica(&self) -> bool {
        self.is_refusal() && matches!(self.kind(), "readonly" | "masterdown")
    }

    /// Whether the server as a whole cannot decide for a while.
    pub fn is_of_the_server(&self) -> bool {
        match self {
            Self::Timeout | Self::Unavailable(_) | Self::Lost(_) => true,
            Self::Refused(_) => matches!(
                self.kind(),
                "readonly" | "loading" | "masterdown" | "clusterdown" | "busy" | "noauth"
            ),
            Self::WrongType(_) | Self::BadReply(_) | Self::Clustered => false,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the store did not answer in time"),
            Self::Unavailable(why) => write!(f, "the store cannot be reached: {why}"),
            Self::Lost(why) => write!(f, "the connection to the store broke: {why}"),
            Self::Refused(why) => write!(f, "the store refused: {why}"),
            Self::WrongType(why) => write!(f, "a key holds what is no state: {why}"),
            Self::BadReply(what) => write!(f, "the store's answer cannot be read: {what}"),
            Self::Clustered => write!(f, "the store {CLUSTERED}"),
        }
    }
}

impl std::error::Error for StoreError {}

/// When a decision is asked for, and what traces it.
#[derive(Clone, Debug, Default)]
pub struct DecideContext {
    /// The moment of a replay; else it is the store's own time.
    pub at_ms: Option<u64>,
    /// Where spans of script runs belong.
    pub span: Option<Arc<Parent>>,
    /// Whether requests of the same domain may be decided on several servers, where hits are given
    /// back when one of them rejects.
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

/// The stores that there are.
#[derive(Debug)]
pub enum Store {
    /// In this process.
    Memory(Arc<MemoryStore>),
    /// In a Redis server that replicas share.
    Redis(Box<RedisStore>),
}

impl Store {
    /// Decides over `counters`; by `policy` while the store cannot.
    ///
    /// # Errors
    /// The store could not decide; see [`StoreError`] for whether hits may have been taken.
    pub async fn transact(
        &self,
        counters: Vec<CounterRequest>,
        policy: OnStoreFailure,
        context: DecideContext,
    ) -> Result<Decision, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.transact(&counters, context.at_ms)),
            Self::Redis(redis) => redis.transact(counters, policy, context).await,
        }
    }

    /// The counters in this process: all, or those of the fallback.
    pub fn memory(&self) -> &MemoryStore {
        match self {
            Self::Memory(memory) => memory,
            Self::Redis(redis) => redis.fallback_memory(),
        }
    }

    /// Waits until there is a connection to the store, where it needs one.
    ///
    /// # Errors
    /// There was none within `deadline`.
    pub async fn connected(&self, deadline: Duration) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.connected(deadline).await,
        }
    }

    /// What is wrong with how the store is set up, for people.
    pub async fn warning(&self) -> Option<String> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => redis.warning().await,
        }
    }

    /// Charges the store what was admitted without it, where it decides, for so long. To be run to its
    /// end: what is under way when it is not is lost.
    pub async fn reconcile(&self, within: Duration) {
        if let Self::Redis(redis) = self {
            redis.reconcile(within).await;
        }
    }

    /// Charges the store what was admitted without it, for the last time.
    pub async fn flush(&self) {
        if let Self::Redis(redis) = self {
            redis.flush().await;
        }
    }

    /// Whether the store would decide now.
    ///
    /// # Errors
    /// Why it would not.
    pub async fn ready(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.ready().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_redis_says_has_a_kind_and_tells_whether_hits_may_be_taken() {
        for (details, kind, may_have_taken) in [
            ("OOM command not allowed when used memory > 'maxmemory'", "oom", false),
            ("NOPERM this user has no permissions to run the 'evalsha' command", "noperm", true),
            (
                "ERR The user executing the script can't run this command or subcommand script: \
                 5b2, on @user_script:501.",
                "noperm",
                true,
            ),
            (
                "ERR ACL failure in script: No permissions to access a key script: on @user_script:1.",
                "noperm",
                true,
            ),
            ("CLUSTERDOWN The cluster is down", "clusterdown", true),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", "broken", false),
            ("ERR unknown command", "refused", false),
        ] {
            let error = StoreError::of_redis(details.to_owned());
            assert_eq!((error.kind(), error.may_have_taken()), (kind, may_have_taken), "{details}");
        }
    }

    #[test]
    fn an_error_says_whether_one_request_of_a_run_may_be_its_cause() {
        for (details, is_of_one) in [
            ("OOM command not allowed when used memory > 'maxmemory'. script: 5b2", true),
            ("MISCONF Redis is configured to save RDB snapshots, but it's unable to", true),
            ("NOREPLICAS Not enough good replicas to write. script: 5b2", true),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", true),
            ("NOPERM this user has no permissions to access one of the keys used as", true),
            ("NOPERM No permissions to access a key", true),
            ("NOPERM User lim has no permissions to access the 'tg:{b}:a' key", true),
            ("NOPERM this user has no permissions to run the 'evalsha' command", false),
            ("ERR The user executing the script can't run this command or subcommand", false),
            ("ERR ACL failure in script: No permissions to access a key script: on", false),
            ("READONLY You can't write against a read only replica.", false),
            ("LOADING Redis is loading the dataset in memory", false),
        ] {
            let error = StoreError::of_redis(details.to_owned());
            assert_eq!(error.may_concern_one_request(), is_of_one, "{details}");
        }
        assert!(!StoreError::Timeout.may_concern_one_request());
    }
}
