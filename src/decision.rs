//! The answer to one request: what was decided, by what, and how each limit stands afterwards.
//!
//! Stores make decisions, and the service, the edges, metrics and logs report them. All of these
//! share the types of this module, which therefore imports none of them.

/// The outcome of one request over all its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request passes.
    pub allowed: bool,
    /// How the decision was reached.
    pub source: Source,
    /// One status per counter request, in their order.
    pub statuses: Vec<Status>,
}

impl Decision {
    /// The decision for a request that matches no limit.
    pub const fn without_limits() -> Self {
        Self { allowed: true, source: Source::NoLimit, statuses: Vec::new() }
    }
}

/// How a decision was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// By the store, on its current state.
    Store,
    /// In this process: the store reported earlier that a limit stays full until later than now.
    DenyCache,
    /// In this process, because the store did not answer.
    Fallback,
    /// No limit applied, so the store was not asked.
    NoLimit,
}

impl Source {
    /// All sources, ordered by their index.
    pub const ALL: [Self; 4] = [Self::Store, Self::DenyCache, Self::Fallback, Self::NoLimit];

    /// The value of the metric label `source`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenyCache => "deny_cache",
            Self::Fallback => "fallback",
            Self::NoLimit => "no_limit",
        }
    }
}

/// How one counter stands after the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether the hits of the request fit.
    pub within_limit: bool,
    /// Single hits that would pass now.
    pub remaining: u64,
    /// Milliseconds until all hits of the limit are free again.
    pub reset_after_ms: u64,
    /// Not within the limit: the smallest wait in milliseconds after which the same hits would
    /// fit. `None` where they fit now, and where no wait suffices.
    pub retry_after_ms: Option<u64>,
    /// Milliseconds to delay the request so that a leaky bucket drains at its rate.
    pub delay_ms: u64,
}

impl Status {
    /// The status of a counter whose state is not known. It promises nothing.
    pub(crate) const UNKNOWN: Self = Self {
        within_limit: true,
        remaining: 0,
        reset_after_ms: 0,
        retry_after_ms: None,
        delay_ms: 0,
    };
}

/// What a limit does to a request whose hits do not fit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Enforcement {
    /// Rejects the request.
    #[default]
    Enforced,
    /// Only reports.
    Shadow,
    /// Rejects the request if all other quotas of the request are over as well. If one
    /// [group](QuotaGroup) of them has room, the request passes.
    Quota,
}

impl Enforcement {
    /// The name in limits files and tables; enforced limits have none.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforced => "",
            Self::Shadow => "shadow",
            Self::Quota => "quota",
        }
    }
}

/// The number of a group of quotas within one request. Groups are numbered from 0 without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QuotaGroup(u8);

impl QuotaGroup {
    /// The most groups in one request. The script gets a group as one byte, of which two values
    /// are taken.
    pub const MAX: usize = 254;

    /// The group with this number; `None` from [`QuotaGroup::MAX`] on.
    pub fn new(number: usize) -> Option<Self> {
        u8::try_from(number).ok().filter(|_| number < Self::MAX).map(Self)
    }

    /// Its number, below [`QuotaGroup::MAX`].
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// The result of checking one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitResult {
    /// The hits fit.
    Allowed = 0,
    /// The hits do not fit, and the request is rejected for it.
    Rejected = 1,
    /// The hits do not fit, and the request passes nevertheless: the rule only reports, or another
    /// quota of the request has room.
    ShadowRejected = 2,
}

impl LimitResult {
    /// All results, ordered by their index.
    pub const ALL: [Self; 3] = [Self::Allowed, Self::Rejected, Self::ShadowRejected];

    /// The result for a limit with this status, in a request that is `allowed` or not.
    pub const fn of(status: &Status, enforcement: Enforcement, allowed: bool) -> Self {
        let rejects = match enforcement {
            Enforcement::Enforced => true,
            Enforcement::Shadow => false,
            Enforcement::Quota => !allowed,
        };
        match (status.within_limit, rejects) {
            (true, _) => Self::Allowed,
            (false, true) => Self::Rejected,
            (false, false) => Self::ShadowRejected,
        }
    }

    /// The value of the metric label `result`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Rejected => "rejected",
            Self::ShadowRejected => "shadow_rejected",
        }
    }
}
