//! What requests get while their store cannot decide: chosen by a flag for the service, and by a
//! limits file for its domain.

/// What a request gets while its store cannot decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnStoreFailure {
    /// Decide in this process alone.
    Local,
    /// Let every request through.
    Allow,
    /// Reject every request.
    Deny,
    /// Answer with an error, so that the caller decides.
    Error,
}

impl OnStoreFailure {
    /// All policies, in the order in which messages list them.
    pub const ALL: [Self; 4] = [Self::Local, Self::Allow, Self::Deny, Self::Error];

    /// The name in limits files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Error => "error",
        }
    }

    /// The policy with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }
}
