//! The rule set: which limits a descriptor meets.
//!
//! A limits file is a tree. A request's descriptor walks down it, one entry a level: at each
//! level the exact value wins, then the wildcards in file order, then the rule for any value.
//! The walk never turns back, and a limit counts only where the descriptor's last entry ends.
//! What the walk finds is a [`Rule`]; a rule without limits exempts its requests.
//!
//! A [`RuleSet`] is an immutable snapshot: a reload makes a new one and the old one stays whole
//! for the requests that still read it. Everything that a request needs in text (paths, names) is
//! spelt when the set is built, so that [`Domain::find`] hashes and compares. The maps are seeded at random: callers cannot choose values that collide.
//!
//! [`parse`] builds rule sets from files and reports every mistake at once. Here is no IO.

mod domain;
mod load_error;
pub mod parse;
mod rule;
mod rule_set;
mod switches;
mod tree;
mod wildcard;

pub use domain::Domain;
pub(crate) use rule::Segment;
pub use rule::{Role, Rule, RuleLimit, Unlimited};
pub use rule_set::RuleSet;
pub use switches::Switches;

/// The deepest nesting of descriptors.
pub const LEVELS_MAX: usize = 32;

/// The most limits on one descriptor.
pub const RULE_LIMITS_MAX: usize = 32;

#[cfg(test)]
mod tests;
