//! Settings that hold for all limits files.

use super::rule::Role;

/// How limits files are read, and what then holds for all their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Files that name the same domain are parts of it; else that is a mistake.
    pub merge_domains: bool,
    /// No limit rejects.
    pub shadow: bool,
    /// Limits reject a request only where all that it meets are over.
    pub quota: bool,
    /// Fixed windows count the hits of rejected requests too, as envoyproxy/ratelimit does.
    pub count_rejected: bool,
}

impl Switches {
    /// What the limits of a rule do that asks for this.
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
