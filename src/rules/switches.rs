//! Settings that hold for all limits files.

use super::rule::Role;

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
    /// The role of the limits of a rule with these flags.
    pub(crate) const fn role(self, shadow: bool, quota: bool) -> Role {
        if self.shadow || shadow {
            Role::Shadow
        } else if self.quota || quota {
            Role::Quota
        } else {
            Role::Enforced
        }
    }
}
