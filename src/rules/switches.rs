//! Settings that hold for all limits files.

use crate::decision::Enforcement;

/// How limits files are read, and what then applies to all their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Files with the same domain are merged; otherwise that is a mistake.
    pub merge_domains: bool,
    /// No limit rejects.
    pub shadow: bool,
    /// A request is rejected only if all the limits that it matches are over.
    pub quota: bool,
    /// Fixed windows count the hits of rejected requests too, as envoyproxy/ratelimit does.
    pub count_rejected: bool,
}

impl Switches {
    /// The enforcement of a limit whose own is `own`: a switch of the domain applies to all its
    /// limits, and shadow applies before quota.
    pub(crate) const fn enforcement(self, own: Enforcement) -> Enforcement {
        match own {
            _ if self.shadow => Enforcement::Shadow,
            Enforcement::Enforced if self.quota => Enforcement::Quota,
            Enforcement::Enforced | Enforcement::Shadow | Enforcement::Quota => own,
        }
    }
}
